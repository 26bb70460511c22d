//! Videos, as far as nothing decodes their packets.

use super::*;

const OPEN_GOP: &[u8] = include_bytes!("../../../../crates/media/tests/videos/open-gop.mp4");
const LIVE: &[u8] = include_bytes!("../../../../crates/media/tests/videos/live.mkv");

fn problem(clip: &str, file: &[u8]) -> String {
    let column = format!(
        "name = \"video\"\nfrom = \"mp4\"\ndecode = \"video\"\nclip = {{ {clip} }}\nops = [{{ center_crop = 8 }}]"
    );
    let followers = ["video_times", "video_mask"]
        .map(|kind| format!("name = \"{kind}\"\nfrom = \"mp4\"\ndecode = \"{kind}\"\nfollows = \"video\""));
    let job = job(&[&followers[0], &column, &followers[1]]);
    let cause = decode(&job, key(3), &[("mp4", file)]).unwrap_err();
    assert_eq!(cause.column, "video", "the column that is followed comes first");
    cause.problem.to_string()
}

#[test]
fn a_file_is_read_before_anything_is_decoded_and_what_is_wrong_is_named() {
    for file in [OPEN_GOP, LIVE] {
        for clip in ["frames = 2", "frames = 3, rate = 5.5", "frames = 500, pick = \"uniform\""] {
            assert_eq!(problem(clip, file), "this program starts no processes that decode videos");
        }
        let short = problem("frames = 500, short = \"bad\"", file);
        assert!(short.ends_with(" frames, which are fewer than those of the clip, and short = \"bad\""), "{short}");
    }
    let cut = problem("frames = 2", &OPEN_GOP[..OPEN_GOP.len() / 2]);
    assert!(cut.starts_with("field `mp4` ") && !cut.contains("processes"), "{cut}");
    assert_eq!(problem("frames = 2", b""), "field `mp4` is empty");
    let text = problem("frames = 2", b"no video at all");
    assert!(text.starts_with("field `mp4` ") && text.contains("no video at all"), "{text}");
}

#[test]
fn a_video_that_is_larger_than_the_limits_is_a_bad_sample() {
    let job = job(&[
        "name = \"video\"\nfrom = \"mp4\"\ndecode = \"video\"\nclip = { frames = 2 }\nops = [{ center_crop = 8 }]",
    ]);
    let limits = PictureLimits { side_pixels: 16_384, pixels: 100 };
    let decoder = Decoder::new(&job, CLASSES).unwrap().with_limits(limits);
    let mut place = vec![0; 2 * 8 * 8 * 3];
    let field = |_: &str| Some(Bytes::from_static(OPEN_GOP).into());
    let cause = decoder.decode_sample(key(3), &field, &mut [FieldTarget::Fixed(&mut place)]).unwrap_err();
    assert!(cause.problem.to_string().contains("the limits are 16384 a side and 100 in all"), "{cause}");
}
