//! AIFF, AU and CAF, beside the same samples in WAV.

use super::{all, chunk, format, head, riff};

/// The bytes of samples of each form with the highest byte first, with the length of one.
fn samples(bytes: usize) -> Vec<u8> {
    // No bits of a float are those of a number that is not finite.
    (0..2400 * bytes).map(|nth| (nth * nth / 7 + nth) as u8 & 0x3f).collect()
}

fn turned(samples: &[u8], bytes: usize) -> Vec<u8> {
    samples.chunks(bytes).flat_map(|sample| sample.iter().rev().copied()).collect()
}

fn wav(tag: u16, bits: u16, samples: &[u8]) -> Vec<u8> {
    riff(&[format(tag, 2, 8000, bits), chunk(b"data", samples)])
}

fn aiff_chunk(name: &[u8; 4], body: &[u8]) -> Vec<u8> {
    let mut chunk = [name, &u32::try_from(body.len()).unwrap().to_be_bytes(), body].concat();
    chunk.resize(chunk.len().next_multiple_of(2), 0);
    chunk
}

/// Returns a file of two channels at 8 kHz, whose samples may come before they are described.
fn aiff(kind: Option<&[u8; 4]>, bits: u16, samples: &[u8], is_late: bool) -> Vec<u8> {
    let rate = [0x40, 0x0b, 0xfa, 0, 0, 0, 0, 0, 0, 0];
    let frames = u32::try_from(samples.len()).unwrap() * 8 / u32::from(2 * bits);
    let mut common = [&2_u16.to_be_bytes()[..], &frames.to_be_bytes(), &bits.to_be_bytes(), &rate].concat();
    if let Some(kind) = kind {
        common.extend([&kind[..], b"\0\0"].concat());
    }
    let common = [aiff_chunk(b"ANNO", b"odd"), aiff_chunk(b"COMM", &common)].concat();
    let data = aiff_chunk(b"SSND", &[&3_u32.to_be_bytes()[..], &[0; 4], b"abc", samples].concat());
    let chunks = if is_late { [data, common] } else { [common, data] }.concat();
    let form: &[u8; 4] = if kind.is_some() { b"AIFC" } else { b"AIFF" };
    aiff_chunk(b"FORM", &[&form[..], &chunks].concat())
}

fn au(kind: u32, samples: &[u8]) -> Vec<u8> {
    let head = [28, u32::try_from(samples.len()).unwrap(), kind, 8000, 2, 0].map(u32::to_be_bytes);
    [b".snd", head.as_flattened(), samples].concat()
}

fn caf(kind: &[u8; 4], flags: u32, bits: u16, samples: &[u8]) -> Vec<u8> {
    let bits = u32::from(bits);
    let description = [flags, bits / 4, 1, 2, bits].map(u32::to_be_bytes);
    let description = [&8000_f64.to_be_bytes(), &kind[..], description.as_flattened()].concat();
    let chunk = |name: &[u8; 4], body: &[u8]| [name, &(body.len() as u64).to_be_bytes()[..], body].concat();
    let chunks = [chunk(b"desc", &description), chunk(b"free", b"abc"), chunk(b"data", &[&[0; 4], samples].concat())];
    [b"caff\0\x01\0\0", &chunks.concat()[..], b"info\0\0\0\0\0\0\0\0"].concat()
}

/// Returns files of two channels of all forms, each with the WAV file that has the same samples.
pub(super) fn files() -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut files = Vec::new();
    let signs = |samples: &[u8]| samples.iter().map(|byte| byte ^ 0x80).collect::<Vec<u8>>();
    let bytes = samples(1);
    let unsigned = wav(1, 8, &signs(&bytes));
    files.extend([(aiff(None, 8, &bytes, false), unsigned.clone()), (au(2, &bytes), unsigned)]);
    for (tag, kinds, of_au) in [(6, [b"alaw", b"ALAW"], 27), (7, [b"ulaw", b"ULAW"], 1)] {
        let expected = wav(tag, 8, &bytes);
        files.push((caf(kinds[0], 0, 8, &bytes), expected.clone()));
        files.push((au(of_au, &bytes), expected.clone()));
        files.extend(kinds.map(|kind| (aiff(Some(kind), 8, &bytes, false), expected.clone())));
    }
    files.push((aiff(Some(b"raw "), 8, &bytes, false), wav(1, 8, &bytes)));
    for (bits, of_au) in [(16_u16, 3), (24, 4), (32, 5)] {
        let width = usize::from(bits / 8);
        let big = samples(width);
        let little = turned(&big, width);
        let expected = wav(1, bits, &little);
        files.extend([false, true].map(|is_late| (aiff(None, bits, &big, is_late), expected.clone())));
        files.push((aiff(Some(b"NONE"), bits, &big, false), expected.clone()));
        files.push((aiff(Some(b"sowt"), bits, &little, false), expected.clone()));
        files.push((caf(b"lpcm", 0, bits, &big), expected.clone()));
        files.push((caf(b"lpcm", 2, bits, &little), expected.clone()));
        files.push((au(of_au, &big), expected));
    }
    for (bits, kinds, of_au) in [(32_u16, [b"fl32", b"FL32"], 6), (64, [b"fl64", b"FL64"], 7)] {
        let big = samples(usize::from(bits / 8));
        let expected = wav(3, bits, &turned(&big, usize::from(bits / 8)));
        files.extend(kinds.map(|kind| (aiff(Some(kind), bits, &big, false), expected.clone())));
        files.push((caf(b"lpcm", 1, bits, &big), expected.clone()));
        files.push((caf(b"lpcm", 3, bits, &turned(&big, usize::from(bits / 8))), expected.clone()));
        files.push((au(of_au, &big), expected));
    }
    files
}

#[test]
fn aiff_au_and_caf_have_the_samples_that_wav_has() {
    for (number, (file, wav)) in files().into_iter().enumerate() {
        let (track, requests) = head(&file).unwrap();
        let frames = track.frames;
        assert_eq!((track.rate, track.channels, frames), (8000, 2, Some(1200)), "file {number}");
        assert!(requests <= 2, "file {number}: {requests} requests");
        assert!(all(&file).unwrap() == all(&wav).unwrap(), "file {number}");
    }
}

#[test]
fn sizes_that_a_recorder_left_open_reach_to_the_end_of_the_file() {
    let bytes = samples(2);
    let whole = all(&au(3, &bytes)).unwrap();
    let mut file = au(3, &bytes);
    file[8..12].fill(0xff);
    assert!(all(&file).unwrap() == whole);
    assert!(all(&file[..file.len() - 5]).unwrap() == whole[..whole.len() - 4], "a frame that is cut off");
    let mut file = caf(b"lpcm", 0, 16, &bytes);
    file.truncate(file.len() - 12);
    let at = file.windows(4).position(|bytes| bytes == b"data").unwrap();
    file[at + 4..at + 12].fill(0xff);
    assert!(all(&file).unwrap() == whole);
    let mut file = aiff(None, 16, &bytes, false);
    let at = file.windows(4).position(|bytes| bytes == b"SSND").unwrap();
    file[at + 4..at + 8].fill(0);
    assert!(all(&file).unwrap() == whole);
}

#[test]
fn what_is_no_sound_that_can_be_decoded_is_named() {
    let bytes = samples(2);
    let changed = |mut file: Vec<u8>, at: usize, byte: u8| {
        file[at] = byte;
        file
    };
    let plain = aiff(None, 16, &bytes, false);
    let common = plain.windows(4).position(|bytes| bytes == b"COMM").unwrap() + 8;
    for (file, expected) in [
        (
            aiff(Some(b"ima4"), 16, &bytes, false),
            "has samples of 16 bits in the format `ima4` of AIFF, which is not supported",
        ),
        (aiff(None, 40, &bytes, false), "has samples of 40 bits in the format `NONE` of AIFF"),
        (changed(plain.clone(), common + 1, 0), "the sound has no channels"),
        (changed(plain.clone(), common, 0x40), "has 16386 channels"),
        (changed(plain.clone(), common + 8, 0x3f), "the sample rate is 0 Hz"),
        (plain[..common + 9].to_vec(), "within its chunk `COMM`"),
        (plain[..common + 20].to_vec(), "within its chunks: none has samples"),
        (caf(b"alac", 0, 16, &bytes), "has samples of 16 bits in the format `alac` of CAF, which is not supported"),
        (caf(b"lpcm", 0, 40, &bytes), "has samples of 40 bits in the format `lpcm` of CAF"),
        (caf(b"lpcm", 0, 16, &bytes)[..40].to_vec(), "within its chunk `desc`"),
        (au(23, &bytes), "has samples of the encoding 23 of AU, which is not supported"),
        (changed(au(3, &bytes), 7, 20), "the samples begin within the head"),
        (au(3, &bytes)[..20].to_vec(), "within its head"),
    ] {
        let error = all(&file).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}
