// SIGTERM, SIGINT and SIGUSR1: the first asks a run to finish its step, save and exit with 0; a second ends the process at once with 128 +
// signal.
#pragma once

namespace flashgpt {

void catch_stop_signals();
bool stop_requested();
// What the request was: "SIGTERM"; for the message.
const char* stop_signal_name();

}  // namespace flashgpt
