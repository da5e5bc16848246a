// Made by gemmgen: @SUMMARY@
#pragma once

@INCLUDES@
@CHOICE@
