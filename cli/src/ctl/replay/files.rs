//! Writes a batch as files: each column as a NumPy array, pictures also as PNG, and a description of the entries as
//! JSON.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use serde::Serialize;
use spdl_job::{
    Column, ColumnKind, ImageColumn,
    layout::{BatchView, Place, entry_flags},
};
use spdl_types::{DType, ImageColor, ImageLayout, SampleShape};

use crate::ctl::{
    CtlError,
    record_names::{RecordName, RecordNames, SampleNames},
};

/// The content of `batch.json`.
#[derive(Serialize)]
struct Description {
    epoch: u64,
    offset: u64,
    rank: u32,
    world: u32,
    entries: Vec<EntryLine>,
}

#[derive(Serialize)]
struct EntryLine {
    id: u64,
    epoch: u64,
    offset: u64,
    /// Absent for an entry without a sample.
    #[serde(flatten)]
    record: Option<RecordName>,
    /// The documents of a sequence.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    documents: Vec<RecordName>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    flags: Vec<&'static str>,
}

/// Writes one batch, whose entries are of these records, into `folder`. `batch.json` is written last: a folder without it is incomplete.
pub(super) fn write(
    view: &BatchView<'_>,
    columns: &[Column],
    records: Vec<Option<SampleNames>>,
    folder: &Path,
) -> Result<(), CtlError> {
    fs::create_dir_all(folder).map_err(|source| CtlError::WriteFile { path: folder.to_owned(), source })?;
    let description = folder.join("batch.json");
    match fs::remove_file(&description) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            return Err(CtlError::WriteFile { path: description, source });
        }
        _ => write_columns(view, columns, folder)?,
    }
    put(&description, &describe(view, records))
}

/// Returns the names of the records of a batch's entries; `None` for an entry without a sample.
pub(super) async fn records(
    view: &BatchView<'_>,
    names: &mut RecordNames,
) -> Result<Vec<Option<SampleNames>>, CtlError> {
    let mut records = Vec::with_capacity(view.len());
    for entry in view.entries() {
        let is_sample = entry.flags & entry_flags::INVALID == 0;
        records.push(if is_sample { Some(names.of(entry.position(), entry.sample()).await?) } else { None });
    }
    Ok(records)
}

fn describe(view: &BatchView<'_>, records: Vec<Option<SampleNames>>) -> Vec<u8> {
    let header = view.header();
    let entries = view.entries().zip(records).map(|(entry, names)| {
        let (record, documents) = match names {
            None => (None, Vec::new()),
            Some(SampleNames::Record(record)) => (Some(record), Vec::new()),
            Some(SampleNames::Documents(documents)) => (None, documents),
        };
        let flags = flag_names(entry.flags);
        EntryLine { id: entry.id, epoch: entry.epoch, offset: entry.offset, record, documents, flags }
    });
    let (epoch, offset, rank, world) = (header.epoch, header.offset, header.rank, header.world);
    let description = Description { epoch, offset, rank, world, entries: entries.collect() };
    serde_json::to_vec_pretty(&description).expect("plain data serialises")
}

fn write_columns(view: &BatchView<'_>, columns: &[Column], folder: &Path) -> Result<(), CtlError> {
    for (index, (column, layout)) in columns.iter().zip(view.layout().columns()).enumerate() {
        let name = file_name(&column.name);
        match &layout.place {
            Place::Fixed { shape, .. } => {
                put(&folder.join(format!("{name}.npy")), &npy(layout.dtype, shape, view.column_bytes(index)))?;
            }
            Place::Ragged { row, .. } => {
                let is_bytes = matches!(column.shape(), SampleShape::Bytes { .. });
                for entry in 0..view.len() {
                    let (path, bytes) = (folder.join(format!("{name}-{entry:05}")), view.sample_bytes(index, entry));
                    if is_bytes {
                        put(&path.with_added_extension("bin"), bytes)?;
                    } else {
                        put(&path.with_added_extension("npy"), &npy(layout.dtype, row, bytes))?;
                    }
                }
            }
        }
        // The size of a picture of a ragged column is not in it.
        if let (ColumnKind::Image(image), None) = (&column.kind, &column.transform)
            && image.max_pixels().is_none()
            && matches!(layout.dtype, DType::U8 | DType::U16)
        {
            write_pictures((view, index), layout.dtype, image, &folder.join(&name))?;
        }
    }
    Ok(())
}

fn flag_names(flags: u32) -> Vec<&'static str> {
    [
        (entry_flags::INVALID, "invalid"),
        (entry_flags::PADDING, "padding"),
        (entry_flags::SUBSTITUTED, "substituted"),
        (entry_flags::MASKED, "masked"),
        (entry_flags::REDACTED, "redacted"),
    ]
    .into_iter()
    .filter_map(|(bit, name)| (flags & bit != 0).then_some(name))
    .collect()
}

/// Makes a file name of a column's name: replaces characters that could lead out of the folder.
fn file_name(column: &str) -> String {
    column.chars().map(|c| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' }).collect()
}

fn write_pictures(
    (view, index): (&BatchView<'_>, usize),
    dtype: DType,
    &ImageColumn { size: [height, width], layout, color, list, .. }: &ImageColumn,
    prefix: &Path,
) -> Result<(), CtlError> {
    let channels = color.channels() as usize;
    let value_bytes = dtype.bytes();
    let picture_bytes = height as usize * width as usize * channels * value_bytes;
    let stored_as = match (color, dtype) {
        (ImageColor::Rgb | ImageColor::Bgr, DType::U8) => image::ExtendedColorType::Rgb8,
        (ImageColor::Rgb | ImageColor::Bgr, _) => image::ExtendedColorType::Rgb16,
        (ImageColor::Rgba, DType::U8) => image::ExtendedColorType::Rgba8,
        (ImageColor::Rgba, _) => image::ExtendedColorType::Rgba16,
        (ImageColor::Gray, DType::U8) => image::ExtendedColorType::L8,
        (ImageColor::Gray, _) => image::ExtendedColorType::L16,
        (ImageColor::GrayAlpha, DType::U8) => image::ExtendedColorType::La8,
        (ImageColor::GrayAlpha, _) => image::ExtendedColorType::La16,
    };
    for entry in 0..view.len() {
        let pictures = view.sample_bytes(index, entry).chunks_exact(picture_bytes);
        let is_one = list.is_none() && pictures.len() == 1;
        for (number, bytes) in pictures.enumerate() {
            let mut pixels = match layout {
                ImageLayout::Nhwc => bytes.to_vec(),
                ImageLayout::Nchw => interleave(bytes, channels, value_bytes),
            };
            if color == ImageColor::Bgr {
                for pixel in pixels.chunks_exact_mut(3 * value_bytes) {
                    let (blue, red) = pixel.split_at_mut(2 * value_bytes);
                    blue[..value_bytes].swap_with_slice(red);
                }
            }
            let number = if is_one { String::new() } else { format!("-{number}") };
            let path = PathBuf::from(format!("{}-{entry:05}{number}.png", prefix.display()));
            image::save_buffer(&path, &pixels, width, height, stored_as)
                .map_err(|error| CtlError::WriteFile { path, source: io::Error::other(error) })?;
        }
    }
    Ok(())
}

/// Interleaves planes of values of so many bytes to pixels.
fn interleave(planes: &[u8], channels: usize, value_bytes: usize) -> Vec<u8> {
    let pixels = planes.len() / channels / value_bytes;
    let values = (0..pixels * channels).map(|at| at % channels * pixels + at / channels);
    values.flat_map(|value| &planes[value * value_bytes..][..value_bytes]).copied().collect()
}

/// Returns an array file, format 1.0 (numpy.lib.format), of items of this shape. NumPy has no bf16, so bf16 is written as f32.
fn npy(dtype: DType, shape: &[u32], bytes: &[u8]) -> Vec<u8> {
    let item_bytes = shape.iter().map(|side| *side as usize).product::<usize>() * dtype.bytes();
    let mut file = npy_header(dtype, bytes.len() / item_bytes, shape);
    if dtype == DType::Bf16 {
        // A bf16 is the upper half of an f32.
        file.extend(bytes.chunks_exact(2).flat_map(|value| [0, 0, value[0], value[1]]));
    } else {
        file.extend(bytes);
    }
    file
}

fn npy_header(dtype: DType, items: usize, shape: &[u32]) -> Vec<u8> {
    let descr = match dtype {
        DType::U8 => "|u1",
        DType::U16 => "<u2",
        DType::U32 => "<u4",
        DType::U64 => "<u8",
        DType::I8 => "|i1",
        DType::I16 => "<i2",
        DType::I32 => "<i4",
        DType::I64 => "<i8",
        DType::F16 => "<f2",
        DType::F32 | DType::Bf16 => "<f4",
        DType::F64 => "<f8",
        DType::Bool => "|b1",
    };
    let sides: String = shape.iter().map(|side| format!(" {side},")).collect();
    let mut text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({items},{sides}), }}");
    let padded = (10 + text.len() + 1).next_multiple_of(64);
    text.push_str(&" ".repeat(padded - 10 - text.len() - 1));
    text.push('\n');
    let length = u16::try_from(text.len()).expect("a few hundred characters");
    [b"\x93NUMPY\x01\x00".as_slice(), &length.to_le_bytes(), text.as_bytes()].concat()
}

fn put(path: &Path, bytes: &[u8]) -> Result<(), CtlError> {
    fs::write(path, bytes).map_err(|source| CtlError::WriteFile { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_array_file_starts_as_numpy_wants_it() {
        let header = npy_header(DType::U8, 5, &[2, 2, 3]);
        assert_eq!(header.len() % 64, 0);
        let text = std::str::from_utf8(&header[10..]).unwrap();
        assert!(text.starts_with("{'descr': '|u1', 'fortran_order': False, 'shape': (5, 2, 2, 3,), }"), "{text}");
        assert!(text.ends_with('\n'));
    }

    #[test]
    fn a_column_name_cannot_leave_the_folder() {
        assert_eq!(file_name("../a b"), ".._a_b");
    }

    #[test]
    fn planes_become_pixels() {
        assert_eq!(interleave(&[1, 2, 3, 4, 5, 6], 3, 1), [1, 3, 5, 2, 4, 6]);
        assert_eq!(interleave(&[1, 2, 3], 1, 1), [1, 2, 3]);
        assert_eq!(interleave(&[1, 2, 3, 4, 5, 6, 7, 8], 2, 2), [1, 2, 5, 6, 3, 4, 7, 8]);
    }
}
