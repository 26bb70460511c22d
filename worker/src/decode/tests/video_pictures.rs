//! Videos that are lists of pictures: each frame of a clip is what the picture is in an `image` column, with the draws of its sample.

use proptest::prelude::*;
use spdl_shard::format::FieldValue;

use super::*;

const FORMS: [&str; 4] = [
    "",
    "layout = \"nchw\"\ndtype = \"f32\"\nnormalise = { mean = [0.5, 0.4, 0.3], std = [0.2, 0.2, 0.2] }",
    "color = \"gray\"\ndtype = \"f16\"",
    "color = \"bgr\"",
];
const OPS: [&str; 4] = [
    "{ random_resized_crop = 24 }, \"random_flip\"",
    "{ resize = 40 }, { random_crop = [24, 30] }, { color_jitter = { brightness = 0.4, hue = 0.1 } }",
    "{ random_affine = { degrees = 30, scale = [0.5, 2.0] } }, { resize = [20, 21] }, { random_erasing = { p = 0.5 } }",
    "{ resize = [64, 64] }, { five_crop = 16 }",
];

fn video_column(clip: &str, ops: &str, more: &str) -> String {
    format!("name = \"video\"\nfrom = \"jpg|png\"\ndecode = \"video\"\nclip = {{ {clip} }}\nops = [{ops}]\n{more}")
}

/// Decodes lists of pictures by columns of a job.
fn decoded(job: &Job, key: SampleKey, value: &FieldValue) -> Result<Vec<Vec<u8>>, BadSampleCause> {
    let decoder = Decoder::new(job, CLASSES).unwrap();
    let mut columns: Vec<Vec<u8>> = job.columns.iter().map(|column| vec![0xaa; column.max_bytes() as usize]).collect();
    let mut targets: Vec<FieldTarget<'_>> = columns.iter_mut().map(|bytes| FieldTarget::Fixed(bytes)).collect();
    decoder.decode_sample(key, &|_: &str| Some(value.clone()), &mut targets)?;
    Ok(columns)
}

fn list_of(files: &[&[u8]]) -> FieldValue {
    FieldValue::List(files.iter().map(|file| Some(Bytes::copy_from_slice(file))).collect())
}

fn clip_of(clip: &str, files: &FieldValue) -> Result<Vec<u8>, BadSampleCause> {
    decoded(&job(&[&video_column(clip, "{ resize = [8, 8] }", "")]), key(3), files).map(|mut columns| columns.remove(0))
}

fn problem(clip: &str, files: &FieldValue) -> String {
    clip_of(clip, files).unwrap_err().to_string()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn frames_are_the_pictures_of_an_image_column_with_the_same_draws(
        ops in 0..OPS.len(), form in 0..FORMS.len(), id in any::<u64>(), stride in 1..3_usize, count in 1..6_usize,
    ) {
        // They have several sizes, formats and orientations.
        let files = &[CAT, COFFEE_PROGRESSIVE, ASTRONAUT_EXIF, ASTRONAUT_GREY, COFFEE_CMYK][..count];
        let (ops, form, key) = (OPS[ops], FORMS[form], key(id));
        let clip = format!("frames = 3, stride = {stride}, pick = \"start\"");
        let value = if count == 1 { Bytes::copy_from_slice(files[0]).into() } else { list_of(files) };
        let video = decoded(&job(&[&video_column(&clip, ops, form)]), key, &value).unwrap().remove(0);
        let alone = job(&[&image_column(ops, form)]);
        let expected: Vec<u8> = (0..3)
            .flat_map(|nth| decode(&alone, key, &[("jpg", files[(nth * stride).min(count - 1)])]).unwrap().remove(0))
            .collect();
        prop_assert!(video == expected);
    }

    #[test]
    fn only_the_pictures_of_the_clip_have_to_be_there(
        id in any::<u64>(), count in 2..40_usize, pick in 0..4_usize, frames in 1..9_u32, strict in any::<bool>(),
    ) {
        let pick = ["random", "start", "middle", "uniform"][pick];
        let clip = format!("frames = {frames}, pick = \"{pick}\", short = \"{}\"", if strict { "bad" } else { "repeat_last" });
        let column = video_column(&clip, "{ resize = [8, 8] }", "");
        let mask = "name = \"mask\"\nfrom = \"jpg|png\"\ndecode = \"video_mask\"\nfollows = \"video\"";
        let job = job(&[&column, mask]);
        let key = key(id);
        let nothing = |_: &str| None::<FieldValue>;
        let samples = [(key, &nothing as &dyn FieldLookup)];
        let needed = Decoder::new(&job, CLASSES).unwrap().video_pictures(samples, ("jpg", count)).unwrap();
        let files: Vec<Option<Bytes>> =
            (0..count).map(|nth| needed.contains(&nth).then(|| Bytes::from_static(ASTRONAUT_GREY))).collect();
        let found = decoded(&job, key, &FieldValue::List(files));
        if strict && count < frames as usize {
            prop_assert!(needed.is_empty());
            prop_assert!(found.unwrap_err().to_string().contains("which are fewer than those of the clip"));
            return Ok(());
        }
        prop_assert!(needed.is_sorted() && !needed.is_empty() && needed.len() <= frames as usize);
        let found = found.unwrap();
        let each = whole(ASTRONAUT_GREY, [8, 8]);
        prop_assert!(found[0] == each.repeat(frames as usize));
        let is_real = |nth: usize| u8::from(pick == "uniform" || nth < count);
        let real: Vec<u8> = (0..frames as usize).map(is_real).collect();
        prop_assert_eq!(&found[1], &real);
    }
}

#[test]
fn times_are_counted_by_the_rate_that_the_clip_names() {
    let followers = ["video_times", "video_mask"]
        .map(|kind| format!("name = \"{kind}\"\nfrom = \"jpg\"\ndecode = \"{kind}\"\nfollows = \"video\""));
    let clip = "frames = 5, rate = 6, source_rate = 12.5, pick = \"start\"";
    let job = job(&[&video_column(clip, "{ resize = [8, 8] }", ""), &followers[0], &followers[1]]);
    let found = decoded(&job, key(3), &list_of(&[CAT; 7])).unwrap();
    let times: Vec<f64> = found[1].as_chunks::<8>().0.iter().map(|time| f64::from_le_bytes(*time)).collect();
    let expected = [0.0, 2.0, 4.0, 6.0, 6.0].map(|nth: f64| nth / 12.5);
    assert!(times.iter().zip(expected).all(|(time, expected)| (time - expected).abs() < 1e-12), "{times:?}");
    assert_eq!(found[2], [1, 1, 1, 1, 0]);
}

#[test]
fn what_is_wrong_with_a_frame_is_named_by_its_number() {
    let all = "frames = 3, pick = \"start\"";
    let broken = problem(all, &list_of(&[CAT, &CAT[..CAT.len() / 2], CAT]));
    assert_eq!(
        broken,
        format!(
            "column `video`: picture 1 of the list, from 0: field `jpg` is a JPEG that is cut off after {} bytes",
            CAT.len() / 2
        )
    );
    assert!(problem(all, &list_of(&[CAT, CAT, b""])).ends_with("picture 2 of the list, from 0: field `jpg` is empty"));
    assert!(problem(all, &list_of(&[CAT, b"text", CAT])).contains("picture 1 of the list, from 0: field `jpg` "));
    let null = FieldValue::List(vec![Some(CAT.into()), None, None]);
    assert!(problem(all, &null).ends_with("picture 1 of the list, from 0: field `jpg` is null"));
    assert!(clip_of("frames = 1, pick = \"start\"", &null).is_ok(), "a frame that is not in the clip does not matter");
    assert!(problem("frames = 3, short = \"bad\"", &list_of(&[CAT; 2])).contains("has 2 frames, which are fewer"));
    assert!(
        problem("frames = 3, rate = 5", &list_of(&[CAT; 2]))
            .contains("give `source_rate`, how many are a second, in `clip`")
    );
    assert!(problem(all, &FieldValue::List(vec![])).ends_with("field `jpg` is empty"));
    let times = job(&[
        &video_column(all, "{ resize = [8, 8] }", ""),
        "name = \"times\"\nfrom = \"jpg\"\ndecode = \"video_times\"\nfollows = \"video\"",
    ]);
    let cause = decoded(&times, key(3), &list_of(&[CAT; 3])).unwrap_err();
    assert_eq!(cause.column, "times");
    assert!(cause.to_string().contains("give `source_rate`"), "{cause}");
}

#[test]
fn all_pictures_are_a_value_as_long_as_the_list() {
    let column = video_column("frames = 4, pick = \"all\"", "{ resize = [8, 8] }", "");
    let decoder = Decoder::new(&job(&[&column]), CLASSES).unwrap();
    let of = |count: usize| {
        let mut value = Bytes::new();
        let field = |_: &str| Some(list_of(&vec![ASTRONAUT_GREY; count]));
        let decoded = decoder.decode_sample(key(3), &field, &mut [FieldTarget::Ragged(&mut value)]);
        decoded.map(|()| value)
    };
    for count in 1..=4 {
        assert!(of(count).unwrap() == whole(ASTRONAUT_GREY, [8, 8]).repeat(count), "{count} pictures");
    }
    let error = of(5).unwrap_err().to_string();
    assert!(
        error.contains("field `jpg` has more frames than the 4 that a sample has at most; raise `frames`"),
        "{error}"
    );
}

#[test]
fn times_in_a_field_say_which_pictures_a_clip_has() {
    let followers = ["video_times", "video_mask"]
        .map(|kind| format!("name = \"{kind}\"\nfrom = \"jpg\"\ndecode = \"{kind}\"\nfollows = \"video\""));
    let decoded = |times: Option<FieldValue>, short: &str| {
        let clip = format!("frames = 3, at = \"when\", source_rate = 10, short = \"{short}\"");
        let job = job(&[&video_column(&clip, "{ resize = [8, 8] }", ""), &followers[0], &followers[1]]);
        let mut columns: Vec<Vec<u8>> = job.columns.iter().map(|column| vec![0; column.max_bytes() as usize]).collect();
        let mut targets: Vec<FieldTarget<'_>> = columns.iter_mut().map(|bytes| FieldTarget::Fixed(bytes)).collect();
        let field = |name: &str| if name == "when" { times.clone() } else { Some(list_of(&[CAT; 5])) };
        Decoder::new(&job, CLASSES).unwrap().decode_sample(key(3), &field, &mut targets)?;
        let times = columns[1].as_chunks::<8>().0.iter().map(|time| f64::from_le_bytes(*time));
        Ok::<_, BadSampleCause>((times.collect::<Vec<f64>>(), columns[2].clone()))
    };
    let text = |text: &'static str| Some(Bytes::from_static(text.as_bytes()).into());
    let elements = [0.4_f32, 0.1, 0.25].map(f32::to_le_bytes).concat().into();
    let array = spdl_shard::format::Array { dtype: DType::F32, shape: vec![3], elements };
    let list = FieldValue::List(["0.4", "0.1", "0.25"].map(|text| Some(Bytes::from(text))).into());
    let array = FieldValue::One(spdl_shard::format::Content::Array(array));
    for times in [text("0.4 0.1\t0.25\n"), text("[0.4, 0.1, 0.25]"), Some(array), Some(list)] {
        assert_eq!(decoded(times, "bad").unwrap(), (vec![0.4, 0.1, 0.2], vec![1, 1, 1]));
    }
    assert_eq!(decoded(text("0.1;0.3"), "repeat_last").unwrap(), (vec![0.1, 0.3, 0.3], vec![1, 1, 0]));
    for (times, expected) in [
        (text("0.1 0.3"), "field `when` has 2 times, and the clip has 3 frames"),
        (text("0 0 0 0"), "field `when` has 4 times, and the clip has 3 frames"),
        (text("0 0 9"), "field `when` names second 9, which the video does not have"),
        (text("-1 0 0"), "field `when` names second -1, which the video does not have"),
        (text("0 x 0"), "field `when` is \"x\", not a number"),
        (text("0 nan 0"), "field `when` is \"NaN\", not a number"),
        (None, "`when`"),
    ] {
        let error = decoded(times, "bad").unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}
