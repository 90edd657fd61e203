# Writes a .cpp that holds device files as text: cmake -DROOT=src -DOUT=device_sources.cpp "-DFILES=core/tile/wgmma.cuh;..." -P embed.cmake
# The file defines kDeviceSources of core/cuda/sources.h.
set(text "// Written by tools/embed.cmake from the device files below src.\n#include \"core/cuda/sources.h\"\n\nnamespace flashgpt::cuda {\n\nconst DeviceSource kDeviceSources[] = {\n")
set(count 0)
foreach(name IN LISTS FILES)
  file(READ "${ROOT}/${name}" content)
  string(APPEND text "{\"${name}\", R\"__cuh__(${content})__cuh__\"},\n")
  math(EXPR count "${count} + 1")
endforeach()
string(APPEND text "};\nconst std::size_t kDeviceSourceCount = ${count};\n\n}  // namespace flashgpt::cuda\n")
file(WRITE "${OUT}.new" "${text}")
execute_process(COMMAND "${CMAKE_COMMAND}" -E copy_if_different "${OUT}.new" "${OUT}")
file(REMOVE "${OUT}.new")
