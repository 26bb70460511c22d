//! Columns as DLPack tensors that borrow their batch, and the CUDA streams of consumers: the only unsafe code of the
//! package.
//!
//! The layout of the structures is that of `dlpack.h` 1.1 (<https://dmlc.github.io/dlpack/latest/c_api.html>).
#![allow(unsafe_code)]

use std::{
    any::Any,
    ffi::{CStr, c_void},
    ptr::NonNull,
    sync::Arc,
};

use pyo3::{ffi, prelude::*, types::PyCapsule};
use spdl_gpu::{BatchPlacement, StreamHandle, dlpack_type};

use crate::{
    batch_memory::{BatchMemory, SharedBatch},
    tensor_view::TensorView,
};

const NAME: &CStr = c"dltensor";
const NAME_VERSIONED: &CStr = c"dltensor_versioned";

#[repr(C)]
struct DlDevice {
    kind: i32,
    id: i32,
}

#[repr(C)]
struct DlDataType {
    code: u8,
    bits: u8,
    lanes: u16,
}

#[repr(C)]
struct DlTensor {
    data: *mut c_void,
    device: DlDevice,
    dimensions: i32,
    dtype: DlDataType,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}

#[repr(C)]
struct DlManagedTensor {
    tensor: DlTensor,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut DlManagedTensor)>,
}

#[repr(C)]
struct DlManagedTensorVersioned {
    major: u32,
    minor: u32,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut DlManagedTensorVersioned)>,
    flags: u64,
    tensor: DlTensor,
}

/// What keeps the memory of a tensor alive.
pub(crate) type Owner = Arc<dyn Any + Send + Sync>;

/// Keeps the memory and the tensor's shape alive for as long as a consumer has the tensor.
struct TensorHolder {
    _owner: Owner,
    shape: Vec<i64>,
    strides: Vec<i64>,
}

fn tensor(owner: Owner, placement: BatchPlacement, view: &TensorView) -> (DlTensor, Box<TensorHolder>) {
    let (kind, id) = placement.dlpack_device();
    let mut holder = Box::new(TensorHolder { _owner: owner, shape: view.shape.clone(), strides: view.strides.clone() });
    let tensor = DlTensor {
        // In bounds, as the caller of `export` states. The memory may be written to: the consumer owns it until it
        // releases the tensor.
        data: std::ptr::with_exposed_provenance_mut(view.address),
        device: DlDevice { kind, id },
        dimensions: i32::try_from(view.shape.len()).expect("few dimensions"),
        dtype: data_type(view),
        shape: holder.shape.as_mut_ptr(),
        strides: holder.strides.as_mut_ptr(),
        byte_offset: 0,
    };
    (tensor, holder)
}

fn data_type(view: &TensorView) -> DlDataType {
    let (code, bits) = dlpack_type(view.dtype);
    DlDataType { code: if view.as_bits { 1 } else { code }, bits, lanes: 1 }
}

/// Converts a stream of the consumer's from DLPack's number or its handle.
pub(crate) fn stream(handle: usize) -> StreamHandle {
    // SAFETY: DLPack and `Batch.wait_on` require a live stream of the tensor's device that stays live until the batch
    // is dropped.
    unsafe { StreamHandle::from_raw(handle) }
}

/// Makes a capsule of a batch's tensor, as [`export`] does.
pub(crate) fn export_batch<'py>(
    py: Python<'py>,
    batch: &Arc<SharedBatch>,
    view: &TensorView,
    is_versioned: bool,
) -> PyResult<Bound<'py, PyCapsule>> {
    if let BatchMemory::Slot(batch) = &***batch {
        let (start, bytes) = (view.address - batch.bytes().as_ptr().addr(), batch.bytes().len());
        let end = start + view.span_bytes();
        assert!(end <= bytes, "tensor ends at byte {end} of a batch of {bytes}");
    }
    export(py, batch.clone(), batch.placement(), view, is_versioned)
}

/// Makes a capsule `dltensor`, or `dltensor_versioned` for a consumer that reads that. `view` describes memory of
/// `owner`, and a consumer may write to it.
pub(crate) fn export<'py>(
    py: Python<'py>,
    owner: Owner,
    placement: BatchPlacement,
    view: &TensorView,
    is_versioned: bool,
) -> PyResult<Bound<'py, PyCapsule>> {
    let (tensor, holder) = tensor(owner, placement, view);
    let context = Box::into_raw(holder).cast();
    let (pointer, name, destructor): (*mut c_void, _, ffi::PyCapsule_Destructor) = if is_versioned {
        let deleter = Some(delete_versioned as unsafe extern "C" fn(_));
        let managed = DlManagedTensorVersioned { major: 1, minor: 1, context, deleter, flags: 0, tensor };
        (Box::into_raw(Box::new(managed)).cast(), NAME_VERSIONED, drop_capsule_versioned)
    } else {
        let managed = DlManagedTensor { tensor, context, deleter: Some(delete) };
        (Box::into_raw(Box::new(managed)).cast(), NAME, drop_capsule)
    };
    let pointer = NonNull::new(pointer).expect("a box is not null");
    // SAFETY: the pointer is to a managed tensor of the kind that the name states, and lives until its deleter is
    // called: by the consumer, which renames the capsule, or by the destructor, which calls it only under the old name.
    unsafe { PyCapsule::new_with_pointer_and_destructor(py, pointer, name, Some(destructor)) }
}

unsafe extern "C" fn delete(managed: *mut DlManagedTensor) {
    // SAFETY: DLPack calls a deleter once, with the pointer that `export` made of these two boxes.
    unsafe {
        let managed = Box::from_raw(managed);
        drop(Box::from_raw(managed.context.cast::<TensorHolder>()));
    }
}

unsafe extern "C" fn delete_versioned(managed: *mut DlManagedTensorVersioned) {
    // SAFETY: as in `delete`.
    unsafe {
        let managed = Box::from_raw(managed);
        drop(Box::from_raw(managed.context.cast::<TensorHolder>()));
    }
}

/// Frees a tensor that no consumer took.
unsafe extern "C" fn drop_capsule(capsule: *mut ffi::PyObject) {
    // SAFETY: Python calls a destructor with its capsule, attached. Under its first name a capsule still owns the
    // pointer that `export` put in it.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, NAME.as_ptr()) != 0 {
            delete(ffi::PyCapsule_GetPointer(capsule, NAME.as_ptr()).cast());
        }
    }
}

/// Frees a tensor that no consumer took.
unsafe extern "C" fn drop_capsule_versioned(capsule: *mut ffi::PyObject) {
    // SAFETY: as in `drop_capsule`.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, NAME_VERSIONED.as_ptr()) != 0 {
            delete_versioned(ffi::PyCapsule_GetPointer(capsule, NAME_VERSIONED.as_ptr()).cast());
        }
    }
}
