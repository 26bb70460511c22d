use super::*;

fn value(name: &str) -> Value<'static> {
    match name {
        "width" => Value::Int(256),
        "nsfw" => Value::F32(0.3),
        "score" => Value::F64(0.5),
        "nan" => Value::F64(f64::NAN),
        "split" => Value::Text("train"),
        "good" => Value::Bool(true),
        "cls" => Value::Untyped("7"),
        "flag" => Value::Untyped("True"),
        "image/height" => Value::Int(100),
        "json.meta.author" => Value::Text("it's"),
        _ => Value::Null,
    }
}

fn evaluated(text: &str) -> Result<bool, String> {
    let expression = Expression::parse(text).map_err(|error| error.to_string())?;
    let names: Vec<&str> = expression.names().collect();
    expression.evaluate(&|name| value(names[name])).map_err(|error| error.to_string())
}

#[test]
fn expressions_are_true_of_the_records_that_they_describe() {
    for text in [
        "width >= 256 and nsfw <= 0.3 and split == 'train'",
        "width >= 256 AND NOT (split = \"test\")",
        "width > 255.5 and width < 256.5 and width == 256.0",
        "256 <= width and 0.6 > score",
        "nsfw == 0.3",
        "split in ['train', 'val']",
        "split not in ['test']",
        "width in [1, 256, 3.5]",
        "missing is null",
        "width is not null",
        "good",
        "not good or good",
        "good == true",
        "cls == 7",
        "cls == '7'",
        "cls in [6, 7]",
        "flag",
        "flag != false",
        "image/height < width",
        "`image/height` == 100",
        "json.meta.author == 'it''s'",
        "width == 2_56",
        "width > -1e3",
        "nan != 1",
        "false or true",
        "good or missing > 3",
        "width > 100 or cls > 100 and split == 'test'",
        "width < 99999999999999999999999999999999999999",
        "((((((((((good))))))))))",
    ] {
        assert_eq!(evaluated(text), Ok(true), "{text}");
    }
}

#[test]
fn what_is_false_or_neither_is_not_kept() {
    for text in [
        "width < 256",
        "split != 'train'",
        "missing == 3",
        "missing != 3",
        "not missing == 3",
        "missing in [1]",
        "missing in []",
        "missing not in [1]",
        "missing",
        "not missing",
        "good and missing > 3",
        "nan == 1 or nan < 1 or nan >= 1",
        "width in []",
        "(width > 100 or cls > 100) and split == 'test'",
        "missing < width",
    ] {
        assert_eq!(evaluated(text), Ok(false), "{text}");
    }
}

#[test]
fn an_error_points_at_its_place() {
    for (text, expected) in [
        ("", "is wrong at character 1, the end: a number, a text in quotes or a name is expected"),
        ("width >", "is wrong at character 8, the end: a number, a text in quotes or a name is expected"),
        ("width >= 3 nsfw", "is wrong at character 12, `nsfw`: `and`, `or` or the end is expected"),
        ("width >= 'a", "is wrong at character 10, `'a`: the closing ' is missing"),
        ("a == null", "is wrong at character 6, `null`: write `is null` or `is not null`"),
        ("a is 3", "is wrong at character 6, `3`: `null` is expected after `is`; write == to compare"),
        ("ä > 3 & b", "is wrong at character 7, `& b`: `&` means nothing here"),
        ("(a > 3", "is wrong at character 7, the end: a closing parenthesis is expected"),
        ("a > 3)", "is wrong at character 6, `)`: this parenthesis closes nothing"),
        (
            "(a > 3) > 4",
            "is wrong at character 9, `> 4`: what is in parentheses is true or false and cannot be compared",
        ),
        ("3 > 4", "is wrong at character 1, `3 > 4`: 3 and 4 are no fields"),
        ("a in 3", "is wrong at character 6, `3`: a list is expected, such as ['train', 'test']"),
        ("a in [3, 'b']", "is wrong at character 10, `'b']`: the list begins with 3, and this is 'b'"),
        ("a in [b]", "is wrong at character 7, `b]`: a number, a text in quotes, true or false is expected"),
        ("a in [3 4]", "is wrong at character 9, `4]`: a comma or ] is expected"),
        ("3", "is wrong at character 2, the end: a comparison is expected, such as == or <"),
        ("a > 3x", "is wrong at character 5, `3x`: this is not a number"),
        ("a > 1e999", "is wrong at character 5, `1e999`: this is not a number"),
        (
            "width == 'x'",
            "is wrong at character 7, `== 'x'`: field `width` is the number 256, and is compared with a text",
        ),
        (
            "3 == split",
            "is wrong at character 3, `== split`: field `split` is the text 'train', and is compared with a number",
        ),
        (
            "cls == true",
            "is wrong at character 5, `== true`: field `cls` is the text '7', and is compared with true or false",
        ),
        (
            "split < width",
            "is wrong at character 7, `< width`: field `split` is the text 'train', and is compared with field `width`, the number 256",
        ),
        ("good and width", "is wrong at character 10, `width`: field `width` is the number 256, not true or false"),
        (
            "split in [1]",
            "is wrong at character 7, `in [1]`: field `split` is the text 'train', and is compared with a number",
        ),
    ] {
        assert_eq!(evaluated(text), Err(expected.to_owned()), "{text}");
    }
}

#[test]
fn deep_and_long_expressions_are_refused() {
    for deep in ["(".repeat(200), "not ".repeat(200) + "a", "(".repeat(60_000), "not ".repeat(10_000)] {
        let error = Expression::parse(&deep).unwrap_err();
        assert_eq!(error.problem, "this is nested too deeply");
    }
    let long = format!("a == '{}'", "x".repeat(MAX_BYTES));
    assert!(Expression::parse(&long).unwrap_err().problem.contains("at most 65536 bytes"));
    let wide = vec!["a > 1"; 5000].join(" and ");
    assert_eq!(Expression::parse(&wide).unwrap().names().len(), 1);
}

#[test]
fn a_number_is_compared_exactly_with_one_in_floating_point() {
    let expression = Expression::parse("a < b").unwrap();
    let is_less = |a, b| expression.evaluate(&|name| [a, b][name]).unwrap();
    let (int, float) = (Value::Int((1 << 53) + 1), Value::F64((1_u64 << 53) as f64));
    assert!(is_less(float, int) && !is_less(int, float));
    assert!(is_less(Value::Int(3), Value::F64(3.5)) && is_less(Value::F64(-3.5), Value::Int(-3)));
    assert!(is_less(Value::Int(3), Value::F64(f64::INFINITY)) && is_less(Value::F64(f64::NEG_INFINITY), Value::Int(3)));
}

mod random {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in "[a-z'\"`()\\[\\], <>=!0-9.é-]{0,40}") {
            if let Ok(expression) = Expression::parse(&text) {
                let _ = expression.evaluate(&|name| [Value::Int(3), Value::Null][name % 2]);
            }
        }

        #[test]
        fn any_words_parse_or_are_refused(words in prop::collection::vec(prop::sample::select(vec![
            "a", "b", "and", "or", "not", "in", "is", "null", "true", "3", "'x'", "==", "<", "(", ")", "[", "]", ",",
        ]), 0..12)) {
            let _ = evaluated(&words.join(" "));
        }
    }
}
