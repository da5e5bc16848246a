"""The public Python functions: from text to a spec, a kernel, a simulation, a product, an explanation."""
