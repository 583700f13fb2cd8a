"""Conan 2 recipe for the checkout that it is part of: conan create <checkout>/cmake/packaging/conan"""

import os
import re

from conan import ConanFile
from conan.tools.cmake import CMake, CMakeDeps, CMakeToolchain, cmake_layout
from conan.tools.files import copy, load


class Tilewise(ConanFile):
    name = "tilewise"
    description = "Exact tiled attention on CPUs"
    license = "MIT"
    package_type = "library"
    settings = "os", "arch", "compiler", "build_type"
    options = {"shared": [True, False], "fPIC": [True, False], "openmp": [True, False]}
    default_options = {"shared": False, "fPIC": True, "openmp": True}
    implements = ["auto_shared_fpic"]

    def _checkout(self):
        return os.path.join(self.recipe_folder, "..", "..", "..")

    def set_version(self):
        header = load(self, os.path.join(self._checkout(), "include", "tilewise", "version.hpp"))
        self.version = ".".join(re.findall(r"define TILEWISE_VERSION_\w+ (\d+)", header))

    def export_sources(self):
        for pattern in "CMakeLists.txt", "LICENSE", "include/*", "src/*", "cmake/*":
            copy(self, pattern, src=self._checkout(), dst=self.export_sources_folder)

    def layout(self):
        cmake_layout(self)

    def requirements(self):
        # Only the kernels include it.
        self.requires("xsimd/13.0.0", visible=False)

    def generate(self):
        toolchain = CMakeToolchain(self)
        toolchain.cache_variables["TILEWISE_OPENMP"] = bool(self.options.openmp)
        toolchain.cache_variables["TILEWISE_INSTALL"] = True
        toolchain.cache_variables["TILEWISE_BUILD_TESTS"] = False
        toolchain.cache_variables["TILEWISE_BUILD_BENCH"] = False
        toolchain.generate()
        CMakeDeps(self).generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def package(self):
        CMake(self).install()
        copy(self, "LICENSE", src=self.source_folder, dst=os.path.join(self.package_folder, "licenses"))

    def package_info(self):
        self.cpp_info.libs = ["tilewise"]
        self.cpp_info.set_property("cmake_target_name", "tilewise::tilewise")
        if not self.options.shared:
            if self.options.openmp:
                self.cpp_info.exelinkflags = self.cpp_info.sharedlinkflags = ["-fopenmp"]
            if self.settings.os == "Linux":
                self.cpp_info.system_libs = ["m"]
