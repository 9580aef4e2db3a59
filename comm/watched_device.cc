// SPDX-License-Identifier: Apache-2.0
#include "comm/watched_device.h"

#include <chrono>
#include <exception>
#include <future>
#include <memory>
#include <system_error>
#include <thread>

namespace tandem::comm {
namespace {

constexpr std::chrono::milliseconds kPatience{250};

}  // namespace

void WatchedDevice::set(DeviceHooks hooks) {
  const std::scoped_lock lock(mutex_, question_->asking);
  question_->hook = std::move(hooks.position);
  hooks_ = std::move(hooks);
}

void WatchedDevice::clear() { set({}); }

std::string WatchedDevice::error() {
  const std::scoped_lock lock(mutex_);
  return hooks_.error ? hooks_.error() : std::string();
}

std::optional<DevicePosition> WatchedDevice::position() {
  const std::scoped_lock lock(question_->mutex);
  if (question_->asked) return question_->answer;
  try {
    std::thread(ask, question_).detach();
    question_->asked = true;
  } catch (const std::system_error&) {
    return std::nullopt;  // no thread to be had
  }
  return question_->answer;
}

void WatchedDevice::ask(const std::shared_ptr<Question>& question) {
  std::optional<DevicePosition> answer;
  try {
    const std::scoped_lock asking(question->asking);
    if (question->hook) answer = question->hook();
  } catch (const std::exception&) {
    answer.reset();  // a device in ruins
  }
  const std::scoped_lock told(question->mutex);
  question->answer = answer;
  question->asked = false;
}

void WatchedDevice::forget_position() {
  const std::scoped_lock lock(question_->mutex);
  question_->answer.reset();
}

void WatchedDevice::abandon() noexcept {
  if (!mutex_.try_lock_for(kPatience)) return;  // a hook is stuck in the device's driver
  if (!hooks_.abandon) return mutex_.unlock();
  try {
    const auto done = std::make_shared<std::promise<void>>();
    std::thread([done, abandon = hooks_.abandon] {
      abandon();
      done->set_value();
    }).detach();
    done->get_future().wait_for(kPatience);
  } catch (const std::exception&) {
    return;  // no thread to be had: the process ends without it
  }
}

}  // namespace tandem::comm
