//! Which frames clips have.

use proptest::prelude::*;

use super::*;

fn clip(frames: u32, step: ClipStep, pick: ClipPick) -> VideoClip {
    VideoClip { frames, step, pick, short: ShortVideo::Bad, source_millirate: None, snap: ClipSnap::Exact, at: None }
}

/// Returns the times of `count` frames of 30 a second in milliseconds, which are rounded.
fn rounded(count: i64) -> Vec<i64> {
    (0..count).map(|nth| (nth * 100 + 1) / 3).collect()
}

const fn shown(begins: &[i64], end: i64) -> ShownTimes<'_> {
    ShownTimes { begins, end, time_base: [1, 1000], keys: None }
}

#[test]
fn a_clip_begins_where_its_pick_says_and_has_every_so_many_frames() {
    let begins: Vec<i64> = (0..20).collect();
    let of = |pick, drawn| {
        clip(4, ClipStep::Stride(3), pick).frames_of(&shown(&begins, 20), None, || drawn).unwrap().numbers
    };
    assert_eq!(of(ClipPick::Start, 9), [0, 3, 6, 9]);
    assert_eq!(of(ClipPick::Middle, 9), [5, 8, 11, 14]);
    assert_eq!(of(ClipPick::Random, 0), [0, 3, 6, 9]);
    assert_eq!(of(ClipPick::Random, u64::MAX), [10, 13, 16, 19]);
    assert_eq!(of(ClipPick::Uniform, 9), [2, 7, 12, 17]);
}

#[test]
fn a_clip_lasts_until_its_next_frame_would_be_shown() {
    // 30 frames of 40 units, of which some are left out.
    let begins: Vec<i64> = (0..30).filter(|nth| nth % 10 != 9).map(|nth| 5000 + 40 * nth).collect();
    let video = shown(&begins, 6200);
    let span = |clip: VideoClip, at: Option<&[f64]>| {
        let frames = clip.frames_of(&video, at, || 0).unwrap();
        clip.span_of(&video, &frames)
    };
    let of = |frames, step, pick| span(VideoClip { short: ShortVideo::RepeatLast, ..clip(frames, step, pick) }, None);
    assert_eq!(of(4, ClipStep::Stride(1), ClipPick::Start), [5000, 5160]);
    assert_eq!(of(4, ClipStep::Stride(2), ClipPick::Start), [5000, 5320]);
    // Its last frame is shown for longer.
    assert_eq!(of(9, ClipStep::Stride(1), ClipPick::Start), [5000, 5400]);
    assert_eq!(of(5, ClipStep::Millirate(10_000), ClipPick::Start), [5000, 5500]);
    // It ends with the video.
    assert_eq!(of(40, ClipStep::Stride(1), ClipPick::Start), [5000, 6200]);
    assert_eq!(of(40, ClipStep::Millirate(10_000), ClipPick::Start), [5000, 6200]);
    assert_eq!(of(40, ClipStep::Stride(3), ClipPick::All), [5000, 6200]);
    assert_eq!(of(3, ClipStep::Stride(1), ClipPick::Uniform), [5000, 6200]);
    let at = VideoClip { at: Some("t".to_owned()), ..clip(2, ClipStep::Stride(1), ClipPick::Random) };
    assert_eq!(span(at, Some(&[5.5, 5.13])), [5120, 5520]);
}

#[test]
fn a_rate_takes_the_frames_that_are_shown_and_rounded_times_do_not_matter() {
    let begins = rounded(90);
    let of = |frames, rate: f64, pick| {
        let short = Some(ShortVideo::Bad);
        let file = ClipFile { frames, rate: Some(rate), pick: Some(pick), short, ..ClipFile::default() };
        VideoClip::read(file).unwrap().frames_of(&shown(&begins, 3000), None, || u64::MAX).unwrap().numbers
    };
    assert_eq!(of(90, 30.0, ClipPick::Start), Vec::from_iter(0..90));
    assert_eq!(of(30, 30.0, ClipPick::Random), Vec::from_iter(60..90));
    assert_eq!(of(5, 10.0, ClipPick::Start), [0, 3, 6, 9, 12]);
    assert_eq!(of(3, 1.0, ClipPick::Start), [0, 30, 60]);
    assert_eq!(of(6, 60.0, ClipPick::Start), [0, 0, 1, 1, 2, 2]);
    assert_eq!(of(4, 29.97, ClipPick::Start), [0, 1, 2, 3]);
    // The unit of time is a frame.
    let begins: Vec<i64> = (0..10).collect();
    let unit = ShownTimes { begins: &begins, end: 10, time_base: [1, 30], keys: None };
    let every = clip(10, ClipStep::Millirate(30_000), ClipPick::Start);
    assert_eq!(
        every.frames_of(&unit, None, || 0).unwrap().numbers,
        begins.iter().map(|begin| *begin as usize).collect::<Vec<_>>()
    );
}

#[test]
fn pictures_are_shown_as_long_as_their_rate_says() {
    let file = |rate, source_rate| ClipFile {
        frames: 4,
        rate: Some(rate),
        pick: Some(ClipPick::Start),
        source_rate,
        ..ClipFile::default()
    };
    for (rate, source, expected) in [
        (4.0, 12.0, [0, 3, 6, 9]),
        (8.0, 12.0, [0, 2, 3, 5]),
        (24.0, 12.0, [0, 0, 1, 1]),
        (29.97, 29.97, [0, 1, 2, 3]),
        (0.5, 5.0, [0, 10, 20, 29]),
    ] {
        let clip = VideoClip::read(file(rate, Some(source))).unwrap();
        assert_eq!(clip.pictures_of(30, None, || 0).unwrap().numbers, expected, "{rate} of {source}");
        assert!(clip.needs_times());
        assert_eq!(clip.picture_second(3), Some(3.0 / source));
    }
    let (key, problem) = VideoClip::read(file(1.0, Some(0.0))).unwrap_err();
    assert_eq!((key, &*problem), ("clip", "has source_rate = 0, not in 0.001..=1000"));
    let unknown = VideoClip { source_millirate: None, ..clip(2, ClipStep::Stride(1), ClipPick::Start) };
    assert!(!unknown.needs_times() && unknown.picture_second(3).is_none());
    assert_eq!(unknown.pictures_of(2, None, || 0).unwrap().numbers, [0, 1]);
    assert_eq!(unknown.pictures_of(0, None, || 0), Err(ClipMisfit::TooShort));
    assert!(VideoClip { source_millirate: Some(MAX_RATE + 1), ..unknown }.check().is_err());
}

#[test]
fn frames_that_are_shown_for_long_are_there_more_than_once_with_a_rate() {
    // Pages of slides, of 2, 5 and 3 seconds.
    let times = shown(&[0, 2000, 7000], 10_000);
    let frames = clip(10, ClipStep::Millirate(1000), ClipPick::Start).frames_of(&times, None, || 0).unwrap().numbers;
    assert_eq!(frames, [0, 0, 1, 1, 1, 1, 1, 2, 2, 2]);
}

#[test]
fn a_video_that_is_too_short_repeats_frames_or_is_bad() {
    let begins = rounded(5);
    let times = shown(&begins, 167);
    for (step, pick, real, expected) in [
        (ClipStep::Stride(2), ClipPick::Random, 3, [0, 2, 4, 4, 4, 4]),
        (ClipStep::Stride(u32::MAX), ClipPick::Middle, 1, [0, 4, 4, 4, 4, 4]),
        (ClipStep::Millirate(15_000), ClipPick::Random, 3, [0, 2, 4, 4, 4, 4]),
        (ClipStep::Millirate(1), ClipPick::Start, 1, [0, 4, 4, 4, 4, 4]),
        (ClipStep::Stride(1), ClipPick::Uniform, 6, [0, 1, 2, 2, 3, 4]),
    ] {
        let clip = clip(6, step, pick);
        assert_eq!(clip.frames_of(&times, None, || 0), Err(ClipMisfit::TooShort), "{clip:?}");
        let lenient = VideoClip { short: ShortVideo::RepeatLast, ..clip.clone() };
        let taken = lenient.frames_of(&times, None, || u64::MAX).unwrap();
        assert_eq!((&taken.numbers[..], taken.real), (&expected[..], real), "{clip:?}");
        assert_eq!(lenient.frames_of(&shown(&[], 0), None, || 0), Err(ClipMisfit::TooShort), "no frames");
    }
}

#[test]
fn all_frames_are_as_many_as_the_video_has_and_no_more_than_a_sample_may_have() {
    let begins = rounded(30);
    let times = shown(&begins, 1000);
    let all = |most, step| clip(most, step, ClipPick::All).frames_of(&times, None, || 7);
    for (most, step, expected) in [
        (30, ClipStep::Stride(1), Vec::from_iter(0..30)),
        (4, ClipStep::Stride(9), vec![0, 9, 18, 27]),
        (65_536, ClipStep::Stride(u32::MAX), vec![0]),
        (5, ClipStep::Millirate(5000), vec![0, 6, 12, 18, 24]),
        (60, ClipStep::Millirate(60_000), (0..60).map(|nth| nth / 2).collect()),
    ] {
        let found = all(most, step).unwrap();
        assert_eq!((&found.numbers, found.real), (&expected, expected.len()), "{step:?}");
        let is_refused = all(expected.len() as u32 - 1, step) == Err(ClipMisfit::TooLong);
        assert!(expected.len() == 1 || is_refused, "{step:?}");
    }
    let every = clip(9, ClipStep::Stride(1), ClipPick::All);
    assert_eq!(every.frames_of(&shown(&[], 0), None, || 0), Err(ClipMisfit::TooShort));
    assert_eq!(every.pictures_of(3, None, || 0).unwrap().numbers, [0, 1, 2]);
}

#[test]
fn times_take_the_frames_that_are_shown_then() {
    let begins = rounded(60);
    let times = shown(&begins, 2000);
    let of = |at: &[f64], short| -> Result<(Vec<usize>, usize), ClipMisfit> {
        let file = ClipFile { frames: 4, at: Some("times".to_owned()), short: Some(short), ..ClipFile::default() };
        let found = VideoClip::read(file).unwrap().frames_of(&times, Some(at), || 7)?;
        Ok((found.numbers, found.real))
    };
    let strict = |at: &[f64]| of(at, ShortVideo::Bad);
    assert_eq!(strict(&[0.0, 0.05, 1.0, 1.99]), Ok((vec![0, 1, 30, 59], 4)));
    // Times of frames as numbers of 4 bytes and as texts have them, and in any order.
    assert_eq!(strict(&[59.0 / 30.0, f64::from(1.1_f32), 0.033, 0.667]), Ok((vec![59, 33, 1, 20], 4)));
    assert_eq!(strict(&[2.0, 2.4, -0.0005, 0.0]), Ok((vec![59, 59, 0, 0], 4)));
    assert_eq!(strict(&[0.0, 0.0, 0.0, 2.6]), Err(ClipMisfit::Outside(2.6)));
    assert_eq!(strict(&[-0.1, 0.0, 0.0, 0.0]), Err(ClipMisfit::Outside(-0.1)));
    assert_eq!(strict(&[f64::MAX; 4]), Err(ClipMisfit::Outside(f64::MAX)));
    assert_eq!(strict(&[0.0; 3]), Err(ClipMisfit::TimeCount(3)));
    assert_eq!(of(&[0.0, 0.1], ShortVideo::RepeatLast), Ok((vec![0, 3, 3, 3], 2)));
    assert_eq!(of(&[], ShortVideo::RepeatLast), Err(ClipMisfit::TimeCount(0)));
    assert_eq!(of(&[0.0; 5], ShortVideo::RepeatLast), Err(ClipMisfit::TimeCount(5)));
}

#[test]
fn a_clip_that_snaps_begins_with_a_key_frame() {
    let begins: Vec<i64> = (0..40).collect();
    let keys = [2, 12, 30];
    let times = ShownTimes { keys: Some(&keys), ..shown(&begins, 40) };
    let of = |pick, drawn, at: Option<&[f64]>| {
        let clip = VideoClip { snap: ClipSnap::KeyFrame, ..clip(4, ClipStep::Stride(3), pick) };
        clip.frames_of(&times, at, || drawn).unwrap().numbers
    };
    assert_eq!(of(ClipPick::Middle, 0, None), [12, 15, 18, 21]);
    assert_eq!(of(ClipPick::Random, u64::MAX, None), [30, 33, 36, 39]);
    assert_eq!(of(ClipPick::Start, 0, None), [0, 3, 6, 9], "no key frame is shown before");
    assert_eq!(of(ClipPick::Uniform, 0, None), [2, 12, 12, 30]);
    assert_eq!(of(ClipPick::Random, 0, Some(&[0.0, 0.003, 0.029, 0.03])), [1, 2, 30, 30]);
    let pictures = VideoClip { snap: ClipSnap::KeyFrame, ..clip(4, ClipStep::Stride(3), ClipPick::Middle) };
    assert_eq!(pictures.pictures_of(40, None, || 0).unwrap().numbers, [15, 18, 21, 24], "pictures need no others");
}

fn any_clip() -> impl Strategy<Value = VideoClip> {
    let step = prop_oneof![
        (1..40_u32).prop_map(ClipStep::Stride),
        (1..=MAX_RATE).prop_map(ClipStep::Millirate),
        any::<u32>().prop_map(|stride| ClipStep::Stride(stride.max(1))),
    ];
    let picks = vec![ClipPick::Random, ClipPick::Start, ClipPick::Middle, ClipPick::Uniform];
    let snaps = vec![ClipSnap::Exact, ClipSnap::KeyFrame];
    let shorts = vec![ShortVideo::Bad, ShortVideo::RepeatLast];
    use proptest::sample::select;
    let parts = (1..60_u32, step, select(picks), select(shorts), select(snaps));
    parts.prop_map(|(frames, step, pick, short, snap)| VideoClip { short, snap, ..clip(frames, step, pick) })
}

#[test]
fn a_clip_begins_with_its_key_frame_though_the_next_frame_begins_at_the_same_time() {
    let snapped = VideoClip { snap: ClipSnap::KeyFrame, ..clip(2, ClipStep::Millirate(1000), ClipPick::Start) };
    let times = ShownTimes { begins: &[0, 0, 1, 2], end: 3, time_base: [1, 1], keys: Some(&[0]) };
    assert_eq!(snapped.frames_of(&times, None, || 0).unwrap().numbers, [0, 2]);
}

proptest! {
    #[test]
    fn frames_are_of_the_video_and_in_order_whatever_its_times_are(
        clip in any_clip(),
        begins in proptest::collection::vec(prop_oneof![0..5000_i64, -(1_i64 << 62)..1_i64 << 62], 0..80),
        end in any::<i64>(),
        time_base in [1..=u32::MAX, 1..=u32::MAX],
        every in 1..20_usize,
        drawn in any::<u64>(),
    ) {
        let mut begins = begins;
        begins.sort_unstable();
        let keys: Vec<usize> = (0..begins.len()).step_by(every).collect();
        let times = ShownTimes { begins: &begins, end, time_base, keys: Some(&keys) };
        let Ok(ClipFrames { numbers: frames, real }) = clip.frames_of(&times, None, || drawn) else {
            prop_assert!(begins.is_empty() || clip.short == ShortVideo::Bad);
            return Ok(());
        };
        prop_assert_eq!(frames.len(), clip.frames as usize);
        prop_assert!(real >= 1 && real <= frames.len() && (real == frames.len() || clip.short == ShortVideo::RepeatLast));
        prop_assert!(frames[real..].iter().all(|frame| *frame == begins.len() - 1), "{:?}", frames);
        prop_assert!(frames.is_sorted() && frames.iter().all(|frame| *frame < begins.len()), "{:?}", frames);
        let is_snapped = |frame: usize| frame.is_multiple_of(every);
        prop_assert!(clip.snap.is_exact() || is_snapped(frames[0]));
        prop_assert!(clip.snap.is_exact() || clip.pick != ClipPick::Uniform || frames.iter().all(|frame| is_snapped(*frame)));
        if let (ClipStep::Stride(stride), ShortVideo::Bad) = (clip.step, clip.short)
            && clip.pick != ClipPick::Uniform
        {
            prop_assert!(frames.windows(2).all(|pair| pair[1] - pair[0] == stride as usize), "{:?}", frames);
        }
    }

    #[test]
    fn a_rate_on_steady_frames_is_a_stride(
        count in 1..200_u32,
        frames in 1..20_u32,
        stride in 1..8_u32,
        unit in 1..2000_u32,
        drawn in any::<u64>(),
    ) {
        // Frames of 24 a second in a time base that has them exactly.
        let begins: Vec<i64> = (0..count).map(|nth| i64::from(nth) * i64::from(unit)).collect();
        let end = i64::from(count) * i64::from(unit);
        let times = ShownTimes { begins: &begins, end, time_base: [1, 24 * unit], keys: None };
        let by_stride = clip(frames, ClipStep::Stride(stride), ClipPick::Random).frames_of(&times, None, || drawn);
        let by_rate = clip(frames, ClipStep::Millirate(24_000 / stride), ClipPick::Random);
        if 24_000 % stride == 0 {
            prop_assert_eq!(by_rate.frames_of(&times, None, || drawn), by_stride);
        }
    }
}
