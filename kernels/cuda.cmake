# The CUDA half of `kernels`: added to the same library, so that a missing op is a link error.
