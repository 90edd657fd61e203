// Scalars for TensorBoard, in its event files. A file is a sequence of records (TFRecord):
//   u64 length | u32 masked CRC-32C of these 8 bytes | payload | u32 masked CRC-32C of the payload       little endian
// A payload is a protobuf message Event: wall_time = 1 (double), step = 2 (int64), file_version = 3 (string), summary = 5, session_log = 7;
// a summary holds values: tag = 1 (string), simple_value = 2 (float). The few fields are encoded here by hand.
#pragma once
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace flashgpt {

struct Scalar {
  std::string_view tag;  // "train/loss": TensorBoard groups by what stands before the slash
  double value = 0;      // stored as a float; not finite: TensorBoard shows it as such
};

// Castagnoli's CRC, as iSCSI and TFRecord use it, of bytes.
std::uint32_t crc32c(std::string_view bytes);

// One Event as a record. first_step: of a run that goes on here, so that TensorBoard drops what it has of this and later steps.
std::string event_record(double wall_time, std::int64_t step, std::span<const Scalar> scalars);
std::string version_record(double wall_time);
std::string start_record(double wall_time, std::int64_t first_step);

// An event file that grows: FOLDER/events.out.tfevents.SECONDS.HOST.PID. Each write is a whole record; a kill may leave a torn one at the
// end, which TensorBoard passes over. Events are a convenience: what cannot be written (a full disk) ends the file and fails no run.
class EventFile {
 public:
  // first_step: that write() will see first. Of it and later steps, files of earlier sittings no longer count.
  EventFile(const std::filesystem::path& folder, std::int64_t first_step);
  ~EventFile();
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;

  void write(std::int64_t step, std::span<const Scalar> scalars);
  void write(std::int64_t step, std::initializer_list<Scalar> scalars) { write(step, std::span(scalars.begin(), scalars.size())); }
  bool open() const { return fd_ >= 0; }
  const std::filesystem::path& path() const { return path_; }

 private:
  void put(const std::string& record);

  std::filesystem::path path_;
  int fd_ = -1;
};

}  // namespace flashgpt
