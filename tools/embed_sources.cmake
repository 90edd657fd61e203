# embed_device_sources(<variable>): a generated .cpp with every .cuh below src, and the shared headers that device files include
# (marked by a line `// device: shared`). Adds the command that rewrites it when one of them changes.
function(embed_device_sources variable)
  file(GLOB_RECURSE files RELATIVE ${PROJECT_SOURCE_DIR}/src CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/*.cuh)
  file(GLOB_RECURSE headers RELATIVE ${PROJECT_SOURCE_DIR}/src CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/*.h)
  foreach(header IN LISTS headers)
    file(STRINGS ${PROJECT_SOURCE_DIR}/src/${header} mark REGEX "^// device: shared" LIMIT_COUNT 1)
    if(mark)
      list(APPEND files ${header})
    endif()
  endforeach()
  list(SORT files)
  list(TRANSFORM files PREPEND ${PROJECT_SOURCE_DIR}/src/ OUTPUT_VARIABLE paths)
  set(out ${CMAKE_BINARY_DIR}/generated/device_sources.cpp)
  set(script ${PROJECT_SOURCE_DIR}/tools/embed.cmake)
  add_custom_command(OUTPUT ${out}
    COMMAND ${CMAKE_COMMAND} -DROOT=${PROJECT_SOURCE_DIR}/src -DOUT=${out} "-DFILES=${files}" -P ${script}
    DEPENDS ${paths} ${script} VERBATIM)
  set(${variable} ${out} PARENT_SCOPE)
endfunction()
