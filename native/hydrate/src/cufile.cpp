#include "cufile.h"

#include <dlfcn.h>
#include <sys/types.h>

#include <cerrno>
#include <type_traits>

#include "failure.h"

namespace coldsnap::hydrate {

namespace {

// Values and layouts of cufile.h, which is not needed to build this.
constexpr int descriptor_of_linux = 1;

struct Result {
  int code, cuda;
};
struct Description {
  int type;
  union {
    int descriptor;
    void *handle;
  };
  const void *operations;
};
static_assert(sizeof(Description) == 24);
struct Properties {
  unsigned major, minor;
  size_t poll_threshold, most_direct_bytes;
  unsigned file_systems;  // a bit for each that it reads without a copy
  unsigned control;
  unsigned later[64];  // more than any version has
};

[[noreturn]] void refuse(const char *what, int code) {
  throw Failure(COLDSNAP_HYDRATE_DEVICE, text("%s failed: cuFile error %d", what, code));
}

}  // namespace

struct CuFile::Calls {
  Result (*open)() = nullptr;
  Result (*close)() = nullptr;
  Result (*properties)(Properties *) = nullptr;
  Result (*take)(Handle *, Description *) = nullptr;
  void (*let_go)(Handle) = nullptr;
  ssize_t (*read)(Handle, void *, size_t, off_t, off_t) = nullptr;
};

void CuFile::load(const char *name) {
  // As libcuda, the library stays loaded: nobody says that it survives being unloaded.
  void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char *reason = dlerror();
    throw Failure(COLDSNAP_HYDRATE_NO_DEVICE,
                  text("no cuFile: %s", reason != nullptr ? reason : name));
  }
  calls_ = std::make_unique<Calls>();
  const auto find = [library](auto &call, const char *symbol) {
    call = reinterpret_cast<std::remove_reference_t<decltype(call)>>(dlsym(library, symbol));
    if (call == nullptr) {
      throw Failure(COLDSNAP_HYDRATE_NO_DEVICE, text("libcufile has no %s", symbol));
    }
  };
  find(calls_->open, "cuFileDriverOpen");
  find(calls_->close, "cuFileDriverClose");
  find(calls_->properties, "cuFileDriverGetProperties");
  find(calls_->take, "cuFileHandleRegister");
  find(calls_->let_go, "cuFileHandleDeregister");
  find(calls_->read, "cuFileRead");
}

CuFile::CuFile(const char *library) {
  load(library != nullptr ? library : "libcufile.so.0");
  const Result opened = calls_->open();
  if (opened.code != 0) refuse("cuFileDriverOpen", opened.code);
  Properties found{};
  const Result told = calls_->properties(&found);
  if (told.code != 0 || found.file_systems == 0) {
    calls_->close();
    if (told.code != 0) refuse("cuFileDriverGetProperties", told.code);
    throw Failure(COLDSNAP_HYDRATE_NO_DEVICE,
                  "cuFile would copy through host memory here: no file system is read directly");
  }
}

CuFile::~CuFile() { calls_->close(); }

CuFile::Handle CuFile::take(int descriptor) const {
  Description description{};
  description.type = descriptor_of_linux;
  description.descriptor = descriptor;
  Handle handle = nullptr;
  const Result result = calls_->take(&handle, &description);
  if (result.code != 0) refuse("cuFileHandleRegister", result.code);
  return handle;
}

void CuFile::let_go(Handle file) const noexcept { calls_->let_go(file); }

void CuFile::read(Handle file, uint64_t address, uint64_t bytes, uint64_t offset) const {
  for (uint64_t done = 0; done < bytes;) {
    errno = 0;
    const ssize_t count =
        calls_->read(file, reinterpret_cast<void *>(static_cast<uintptr_t>(address + done)),
                     bytes - done, static_cast<off_t>(offset + done), 0);
    if (count == -1) throw Failure(COLDSNAP_HYDRATE_FILE, system_text("cuFileRead", errno));
    if (count < 0) refuse("cuFileRead", static_cast<int>(-count));
    if (count == 0) {
      throw Failure(COLDSNAP_HYDRATE_SHORT, "cuFileRead gave fewer bytes than were asked for");
    }
    done += static_cast<uint64_t>(count);
  }
}

}  // namespace coldsnap::hydrate
