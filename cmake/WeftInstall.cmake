# cmake/WeftInstall.cmake -- headers, libraries, CMake package, pkg-config file, license, manual page.
include(CMakePackageConfigHelpers)

set(weft_installed weft weft_static)
install(TARGETS ${weft_installed} EXPORT weftTargets
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
    RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
if(TARGET weft_llvm)
    install(TARGETS weft_llvm LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} NAMELINK_SKIP)
endif()
if(TARGET weft_cli)
    install(TARGETS weft_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
    install(FILES docs/weft.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
endif()
install(DIRECTORY include/weft DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(FILES tools/weft-gdb.py DESTINATION ${CMAKE_INSTALL_DATADIR}/weft)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/licenses/weft)

set(weft_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/weft)
configure_package_config_file(cmake/weftConfig.cmake.in weftConfig.cmake
    INSTALL_DESTINATION ${weft_package_dir})
write_basic_package_version_file(weftConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(EXPORT weftTargets NAMESPACE weft:: DESTINATION ${weft_package_dir})
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/weftConfig.cmake"
    "${CMAKE_CURRENT_BINARY_DIR}/weftConfigVersion.cmake" DESTINATION ${weft_package_dir})
file(RELATIVE_PATH weft_pc_to_prefix "/prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/prefix")
configure_file(cmake/weft.pc.in weft.pc @ONLY)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/weft.pc" DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
