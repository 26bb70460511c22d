/* Decodes a region of a JPEG with libjpeg-turbo, at the smallest scale that covers the result: the benchmark `crop`
 * compares with this. */
#include <stddef.h>
#include <stdio.h>
#include <setjmp.h>
#include <stdlib.h>
#include <jpeglib.h>

struct failure {
    struct jpeg_error_mgr manager;
    jmp_buf back;
};

static void fail(j_common_ptr info) { longjmp(((struct failure *)info->err)->back, 1); }
static void say_nothing(j_common_ptr info) { (void)info; }

/* Decodes the rows and columns of `rect` (left, top, width, height) to RGB. On return, `rect` has the left offset and
 * the row width in `out`, then the width and height of the region, all at the chosen scale. Returns the numerator of
 * the scale (of 8), or 0 when the picture cannot be decoded. */
int turbo_region(const unsigned char *bytes, size_t length, unsigned rect[4], const unsigned target[2],
                 unsigned char *out, size_t room) {
    struct jpeg_decompress_struct info;
    struct failure failure;
    info.err = jpeg_std_error(&failure.manager);
    failure.manager.error_exit = fail;
    failure.manager.output_message = say_nothing;
    if (setjmp(failure.back)) {
        jpeg_destroy_decompress(&info);
        return 0;
    }
    jpeg_create_decompress(&info);
    jpeg_mem_src(&info, bytes, length);
    jpeg_read_header(&info, TRUE);
    unsigned scale = 8;
    while (scale > 1 && rect[2] * scale / 16 >= target[0] && rect[3] * scale / 16 >= target[1]) scale /= 2;
    info.scale_num = scale;
    info.scale_denom = 8;
    info.out_color_space = JCS_RGB;
    jpeg_start_decompress(&info);
    unsigned left = rect[0] * scale / 8, top = rect[1] * scale / 8;
    unsigned right = (rect[0] + rect[2]) * scale / 8, bottom = (rect[1] + rect[3]) * scale / 8;
    JDIMENSION across = left, width = right - left;
    jpeg_crop_scanline(&info, &across, &width);
    jpeg_skip_scanlines(&info, top);
    size_t row_bytes = (size_t)width * 3;
    if ((bottom - top) * row_bytes > room) longjmp(failure.back, 1);
    for (unsigned row = top; row < bottom;) {
        JSAMPROW rows[4];
        for (unsigned at = 0; at < 4; at++) rows[at] = out + (row - top + at) * row_bytes;
        row += jpeg_read_scanlines(&info, rows, bottom - row < 4 ? bottom - row : 4);
    }
    jpeg_abort_decompress(&info);
    jpeg_destroy_decompress(&info);
    rect[0] = left - across, rect[1] = width, rect[2] = right - left, rect[3] = bottom - top;
    return (int)scale;
}
