//! The functions of libavcodec and libavutil: one table, looked up when they are loaded.

use std::ffi::{c_char, c_int, c_uint, c_void};

use libloading::os::unix::Library;

/// Types of which only pointers are used, and the few fields that `layout.rs` has.
pub(super) enum AvCodec {}
pub(super) enum AvContext {}
pub(super) enum AvFrame {}
pub(super) enum AvPacket {}
pub(super) enum AvParameters {}

/// Declares the table.
macro_rules! library_functions {
    ($($name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)?;)*) => {
        /// The functions. All may be called by one thread at a time for each context, as the manual of libavcodec has it.
        pub(super) struct CodecFunctions {
            $(pub(super) $name: unsafe extern "C" fn($($argument: $type),*) $(-> $result)?,)*
        }

        impl CodecFunctions {
            /// Looks all of them up; those of libavutil are found as well, which libavcodec is linked to. Returns the name of one
            /// that is not there.
            ///
            /// # Safety
            /// The library is libavcodec, and stays loaded for as long as the functions are used.
            pub(super) unsafe fn look_up(library: &Library) -> Result<Self, &'static str> {
                Ok(Self {
                    // SAFETY: the type is that of the headers, the same in FFmpeg 5 to 9, and the caller keeps the library.
                    $($name: *unsafe { library.get(concat!(stringify!($name), "\0")) }.map_err(|_| stringify!($name))?,)*
                })
            }
        }
    };
}

library_functions! {
    avcodec_version() -> c_uint;
    avutil_version() -> c_uint;
    avcodec_find_decoder_by_name(name: *const c_char) -> *const AvCodec;
    avcodec_alloc_context3(codec: *const AvCodec) -> *mut AvContext;
    avcodec_free_context(context: *mut *mut AvContext);
    avcodec_parameters_alloc() -> *mut AvParameters;
    avcodec_parameters_free(parameters: *mut *mut AvParameters);
    avcodec_parameters_to_context(context: *mut AvContext, parameters: *const AvParameters) -> c_int;
    avcodec_open2(context: *mut AvContext, codec: *const AvCodec, options: *mut *mut c_void) -> c_int;
    avcodec_send_packet(context: *mut AvContext, packet: *const AvPacket) -> c_int;
    avcodec_receive_frame(context: *mut AvContext, frame: *mut AvFrame) -> c_int;
    avcodec_flush_buffers(context: *mut AvContext);
    av_packet_alloc() -> *mut AvPacket;
    av_packet_free(packet: *mut *mut AvPacket);
    av_packet_unref(packet: *mut AvPacket);
    av_new_packet(packet: *mut AvPacket, bytes: c_int) -> c_int;
    av_frame_alloc() -> *mut AvFrame;
    av_frame_free(frame: *mut *mut AvFrame);
    av_opt_set_int(object: *mut c_void, name: *const c_char, value: i64, flags: c_int) -> c_int;
    av_opt_get_int(object: *mut c_void, name: *const c_char, flags: c_int, value: *mut i64) -> c_int;
    av_get_pix_fmt_name(format: c_int) -> *const c_char;
    av_strerror(error: c_int, text: *mut c_char, bytes: usize) -> c_int;
    av_mallocz(bytes: usize) -> *mut c_void;
    av_log_set_level(level: c_int);
}
