//! With the feature `turbo`, compiles the part of the benchmark `crop` that calls the system's libjpeg-turbo.

use std::{env, process::Command};

fn main() {
    println!("cargo:rerun-if-changed=benches/turbo.c");
    println!("cargo:rustc-check-cfg=cfg(has_turbo)");
    if env::var_os("CARGO_FEATURE_TURBO").is_none() {
        return;
    }
    let out = env::var("OUT_DIR").expect("set by cargo");
    let (object, archive) = (format!("{out}/turbo.o"), format!("{out}/libspdl_bench_turbo.a"));
    let runs = |program: &str, arguments: &[&str]| {
        Command::new(program).args(arguments).status().is_ok_and(|status| status.success())
    };
    if runs("cc", &["-O3", "-c", "benches/turbo.c", "-o", &object]) && runs("ar", &["rcs", &archive, &object]) {
        println!("cargo:rustc-link-search=native={out}");
        println!("cargo:rustc-link-lib=static=spdl_bench_turbo");
        println!("cargo:rustc-link-lib=jpeg");
        println!("cargo:rustc-cfg=has_turbo");
    } else {
        println!("cargo:warning=no comparison with libjpeg-turbo: its headers or a C compiler are missing");
    }
}
