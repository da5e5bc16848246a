"""Exercises that check themselves: specs to complete or repair, judged by counts, the model and the simulator.

``exercises`` holds them as data, ``measures`` what can be asked of a spec, ``checking`` the verdict.
"""
