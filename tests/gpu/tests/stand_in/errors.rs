//! Tests of devices that cannot be opened and memory that cannot be allocated, and of the error texts.

use spdl_gpu::{Device, DeviceError, DeviceOptions};
use spdl_gpu_tests::{
    checks::{TIMEOUT, cases},
    feed::FeedConfig,
};

use crate::harness::{check_clean, library_without, stand_in_test, with_library};

fn start_error(options: DeviceOptions, config: FeedConfig) -> DeviceError {
    let device = Device::cuda(0).expect("the stand-in has this device");
    config.start(&device, options, TIMEOUT).expect_err("the device has no room")
}

stand_in_test!(the_error_for_a_device_that_does_not_exist_has_the_number_of_devices, "devices=2", {
    let error = Device::open("cuda:5").unwrap_err();
    assert_eq!(error, DeviceError::Index { ordinal: 5, devices: 2 });
    assert!(error.hint().is_some_and(|hint| hint.contains("LOCAL_RANK")));
    assert_eq!(Device::open("cuda:1").unwrap().model().unwrap().as_deref(), Some("stand-in 1"));
    for name in ["cuda:", "cuda:-1", "cuda:x", "cuda:99999999999", "tpu"] {
        assert_eq!(Device::open(name).unwrap_err(), DeviceError::Name { name: name.into() });
    }
    check_clean();
});

stand_in_test!(a_driver_without_devices_is_an_error, "devices=0", {
    assert_eq!(Device::open("cuda").unwrap_err(), DeviceError::Index { ordinal: 0, devices: 0 });
});

stand_in_test!(the_error_for_a_driver_that_does_not_start_has_the_drivers_text, "fail=cuInit@1:803", {
    let error = Device::open("cuda:0").unwrap_err().to_string();
    assert!(error.contains("`cuInit` returned CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"), "{error}");
});

#[test]
fn the_error_on_a_machine_without_a_driver_names_what_to_install() {
    let test = "errors::the_error_on_a_machine_without_a_driver_names_what_to_install";
    with_library(test, None, "", || match Device::open("cuda:0") {
        // A machine with a driver cannot test the error without one.
        Ok(_) | Err(DeviceError::Index { .. }) => println!("this machine has a driver"),
        Err(error) => {
            assert_eq!(error, DeviceError::DriverMissing { device: "cuda:0".into() });
            assert!(error.hint().is_some_and(|hint| hint.contains("install the NVIDIA driver")));
        }
    });
}

#[test]
fn the_error_for_a_driver_that_is_too_old_names_what_it_lacks() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let library = library_without("cuEventQuery", folder.path());
    with_library("errors::the_error_for_a_driver_that_is_too_old_names_what_it_lacks", Some(&library), "", || {
        let error = Device::open("cuda:0").unwrap_err();
        assert_eq!(error, DeviceError::DriverOld { symbol: "cuEventQuery" });
        assert!(error.to_string().contains("older than 470"));
    });
}

stand_in_test!(the_error_for_too_little_memory_has_the_bytes, "memory=100000", {
    let options = DeviceOptions { buffers: 3, ..DeviceOptions::default() };
    let error = start_error(options, FeedConfig { size: [40, 40], ..FeedConfig::default() });
    let DeviceError::OutOfMemory { asked_bytes, free_bytes, total_bytes, .. } = &error else { panic!("{error}") };
    assert_eq!((*total_bytes, *free_bytes), (100_000, 100_000 - 2 * asked_bytes));
    assert!(*asked_bytes > 38_400 && error.to_string().contains(&format!("no {asked_bytes} bytes for a batch")));
    assert!(error.hint().is_some_and(|hint| hint.contains("device buffers")));
    check_clean();
});

stand_in_test!(
    a_call_that_fails_at_the_start_leaves_nothing_behind,
    "fail=cuMemAllocHost_v2@1:2,fail=cuModuleLoadData@2:218",
    {
        let flipping = cases().nth(1).expect("the second case mirrors");
        let options = DeviceOptions { normalise: vec![flipping], ..DeviceOptions::default() };
        for (call, code) in
            [("cuMemAllocHost", "CUDA_ERROR_OUT_OF_MEMORY"), ("cuModuleLoadData", "CUDA_ERROR_INVALID_PTX")]
        {
            let error = start_error(options.clone(), FeedConfig::default()).to_string();
            assert!(error.contains(&format!("`{call}` returned {code}")), "{error}");
            check_clean();
        }
    }
);
