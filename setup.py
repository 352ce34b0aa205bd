"""Interim build; H-build replaces it."""
import numpy
from Cython.Build import cythonize
from glob import glob
from setuptools import Extension, setup
setup(name="fastload", packages=[], ext_modules=cythonize([Extension("fastload._native.core", ["fastload/_native/core.pyx", *sorted(glob("csrc/*.c"))], include_dirs=["csrc"], libraries=["jpeg","turbojpeg","lmdb","pthread","m"], extra_compile_args=["-O3","-std=gnu11","-Wall","-Wextra","-Wno-unused-parameter"])], build_dir="build/cython"))
