# Made by gemmgen: find_package(@PROJECT@) gives the target @PROJECT@::@PROJECT@.
find_path(CUDA_INCLUDE_DIR cuda.h
  HINTS ENV CUDA_HOME ENV CUDA_PATH /usr/local/cuda
  PATH_SUFFIXES include
  DOC "Folder of cuda.h, of CUDA 12.0 or newer")
if(NOT CUDA_INCLUDE_DIR)
  set(@PROJECT@_FOUND FALSE)
  set(@PROJECT@_NOT_FOUND_MESSAGE "cuda.h is not found; pass -DCUDA_INCLUDE_DIR=FOLDER")
  return()
endif()
include("${CMAKE_CURRENT_LIST_DIR}/@PROJECT@Targets.cmake")
target_include_directories(@PROJECT@::@PROJECT@ SYSTEM INTERFACE "${CUDA_INCLUDE_DIR}")
