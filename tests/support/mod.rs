//! Code that several test programs share: a Python with packages, an S3 server, a proxy that injects faults. Include it
//! with `#[path = "../support/mod.rs"] mod support;`.
#![allow(dead_code, reason = "a test program uses a part of it")]

pub(crate) mod proxy;
pub(crate) mod python;
pub(crate) mod s3;
