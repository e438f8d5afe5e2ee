// A CUDA device that is not there: what PyTorch's autograd asks of a device (guards, streams,
// events, hooks), answered by doing nothing. Tensors on it are fake ones; nothing is computed.
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

namespace {
using c10::Device;
using c10::DeviceIndex;
using c10::Stream;

const Device only(c10::DeviceType::CUDA, 0);
const Stream one(Stream::DEFAULT, only);

struct Guard final : c10::impl::NoOpDeviceGuardImpl<c10::DeviceType::CUDA> {
  Device exchangeDevice(Device) const override { return only; }
  Device getDevice() const override { return only; }
  Stream getStream(Device) const noexcept override { return one; }
  Stream getNewStream(Device, int) const override { return one; }
  Stream exchangeStream(Stream) const noexcept override { return one; }
  void record(void**, const Stream&, const DeviceIndex, const c10::EventFlag) const override {}
  void block(void*, const Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
};
C10_REGISTER_GUARD_IMPL(CUDA, Guard)

struct Hooks final : at::CUDAHooksInterface {
  explicit Hooks(at::CUDAHooksArgs) {}
  void init() const override {}
  bool hasCUDA() const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  DeviceIndex deviceCount() const override { return 1; }
  int getNumGPUs() const override { return 1; }
  DeviceIndex current_device() const override { return 0; }
  DeviceIndex getCurrentDevice() const override { return 0; }
};
using Made = c10::Registerer<std::string, std::unique_ptr<at::CUDAHooksInterface>, at::CUDAHooksArgs>;
Made made("CUDAHooks", at::CUDAHooksRegistry(), Made::DefaultCreator<Hooks>);
}  // namespace
