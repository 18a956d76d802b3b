/// Replaces libudev, which hwloc queries for the names of disks, so that the runner needs no library of the node. hwloc
/// expects that udev may be missing, which a null pointer reports.
extern "C" {
struct udev;
struct udev_device;
udev* udev_new() { return nullptr; }
udev* udev_unref(udev* /*of*/) { return nullptr; }
udev_device* udev_device_new_from_subsystem_sysname(udev* /*of*/, const char* /*subsystem*/, const char* /*name*/) {
  return nullptr;
}
const char* udev_device_get_property_value(udev_device* /*of*/, const char* /*key*/) { return nullptr; }
udev_device* udev_device_unref(udev_device* /*of*/) { return nullptr; }
}
