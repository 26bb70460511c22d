//! Tests of devices that cannot be opened and memory that cannot be allocated, and of the error texts.

use spdl_gpu::{Device, DeviceError, DeviceOptions};
use spdl_gpu_tests::{
    checks::{TIMEOUT, cases},
    feed::FeedConfig,
};

use crate::harness::{check_clean, library, library_without, stand_in_test, with_files, with_library};

fn start_error(options: DeviceOptions, config: FeedConfig) -> DeviceError {
    let device = Device::cuda(0).expect("the stand-in has this device");
    config.start(&device, options, TIMEOUT).expect_err("the device has no room")
}

stand_in_test!(the_error_for_a_device_that_does_not_exist_has_the_number_of_devices, "devices=2", {
    let error = Device::open("cuda:5").unwrap_err();
    assert_eq!(error, DeviceError::Index { ordinal: 5, devices: 2 });
    assert!(error.hint().is_some_and(|hint| hint.contains("CUDA_VISIBLE_DEVICES")));
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

stand_in_test!(
    a_driver_that_is_wrongly_installed_is_an_error_with_the_remedy,
    "fail=cuInit@1:34,fail=cuInit@2:802,fail=cuInit@3:803,fail=cuInit@4:804",
    {
        for (number, remedy) in [
            (34, "take the folder `stubs` out of LD_LIBRARY_PATH"),
            (802, "`nvidia-fabricmanager`, of the same version as the driver"),
            (803, "restart the machine after an update of the driver"),
            (804, "`cuda-compat`"),
        ] {
            let error = Device::open("cuda:0").unwrap_err();
            assert!(matches!(error, DeviceError::Call { code, .. } if code == number), "{error}");
            assert!(error.hint().is_some_and(|hint| hint.contains(remedy)), "{error}: {:?}", error.hint());
        }
        assert!(Device::open("cuda:0").is_ok(), "a driver that is repaired can be used");
    }
);

stand_in_test!(
    a_driver_that_shows_no_device_is_an_error_with_what_to_check,
    "fail=cuInit@1:100,fail=cuInit@2:100,fail=cuInit@3:100",
    {
        for name in ["cuda", "cuda:0"] {
            let error = Device::open(name).unwrap_err();
            assert_eq!(error, DeviceError::Index { ordinal: 0, devices: 0 });
            assert!(
                error.hint().is_some_and(|hint| hint.contains("`nvidia-smi` lists a device")),
                "{:?}",
                error.hint()
            );
        }
    }
);

stand_in_test!(a_driver_without_its_compiler_names_the_missing_library, "fail=cuModuleLoadDataEx@1:221", {
    let normalise = vec![cases().next().expect("a case")];
    let error = start_error(DeviceOptions { normalise, ..DeviceOptions::default() }, FeedConfig::default());
    assert!(matches!(error, DeviceError::Call { code: 221, .. }), "{error}");
    assert!(error.hint().is_some_and(|hint| hint.contains("`libnvidia-ptxjitcompiler.so.1`")), "{:?}", error.hint());
    check_clean();
});

stand_in_test!(a_result_that_no_list_has_is_an_error_with_its_number, "fail=cuInit@1:4711", {
    let error = Device::open("cuda:0").unwrap_err();
    assert!(matches!(error, DeviceError::Call { call: "cuInit", code: 4711, .. }), "{error}");
    assert!(error.to_string().contains("`cuInit` returned code 4711 (the driver does not know this code)"), "{error}");
});

stand_in_test!(a_context_that_another_part_of_the_process_has_reset_is_lost, "fail=cuCtxPushCurrent_v2@1:201", {
    let error = Device::open("cuda:0").unwrap().memory().unwrap_err();
    assert!(matches!(error, DeviceError::Lost { code: 201, .. }), "{error}");
});

#[test]
fn a_stub_of_a_toolkit_is_not_taken_for_the_driver() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (stub, driver) = (library_without("cuEventSynchronize", folder.path()), library());
    let test = "errors::a_stub_of_a_toolkit_is_not_taken_for_the_driver";
    with_files(test, &[("libcuda.so", &stub), ("libcuda.so.1", &driver)], "", || {
        assert_eq!(Device::open("cuda:0").unwrap().model().unwrap().as_deref(), Some("stand-in 0"));
        check_clean();
    });
}

#[test]
fn a_driver_that_has_only_the_name_without_a_version_is_found() {
    let test = "errors::a_driver_that_has_only_the_name_without_a_version_is_found";
    with_files(test, &[("libcuda.so", &library())], "", || {
        let version = std::path::Path::new("/usr/lib/x86_64-linux-gnu/libcuda.so.1");
        // A machine with a driver has both names.
        if !version.exists() {
            assert_eq!(Device::open("cuda:0").unwrap().model().unwrap().as_deref(), Some("stand-in 0"));
        }
    });
}

stand_in_test!(a_kernel_that_does_not_compile_is_an_error_with_the_compilers_words, "refuse_ptx=1", {
    let options = DeviceOptions { normalise: cases().take(1).collect(), ..DeviceOptions::default() };
    let error = start_error(options, FeedConfig::default());
    assert!(matches!(error, DeviceError::Call { call: "cuModuleLoadDataEx", code: 218, .. }), "{error}");
    assert!(error.to_string().contains("the driver's compiler: ptxas fatal : refused by the settings"), "{error}");
    check_clean();
});

#[test]
fn the_error_on_a_machine_without_a_driver_names_what_to_install() {
    let test = "errors::the_error_on_a_machine_without_a_driver_names_what_to_install";
    with_files(test, &[], "", || match Device::open("cuda:0") {
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
    let library = library_without("cuEventSynchronize", folder.path());
    with_library("errors::the_error_for_a_driver_that_is_too_old_names_what_it_lacks", &library, "", || {
        let error = Device::open("cuda:0").unwrap_err();
        assert_eq!(error, DeviceError::DriverOld { symbol: "cuEventSynchronize" });
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
    "fail=cuEventCreate@1:2,fail=cuModuleLoadDataEx@2:218",
    {
        let flipping = cases().nth(1).expect("the second case mirrors");
        let options = DeviceOptions { normalise: vec![flipping], ..DeviceOptions::default() };
        for (call, code) in
            [("cuEventCreate", "CUDA_ERROR_OUT_OF_MEMORY"), ("cuModuleLoadDataEx", "CUDA_ERROR_INVALID_PTX")]
        {
            let error = start_error(options.clone(), FeedConfig::default()).to_string();
            assert!(error.contains(&format!("`{call}` returned {code}")), "{error}");
            check_clean();
        }
    }
);
