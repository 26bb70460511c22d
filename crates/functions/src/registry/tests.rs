//! Tests of functions of every kind of value, and of their errors.

use serde::Deserialize;
use spdl_types::{DType, SampleShape};

use super::*;

/// Returns rows, bytes, numbers and a random number, from rows, bytes and a number.
struct Everything {
    by: f32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EverythingArguments {
    by: f32,
}

impl SampleFunction for Everything {
    const NAME: &'static str = "tests::everything";
    const VERSION: u32 = 3;

    fn prepare(setup: &FunctionSetup) -> Result<Self, FunctionProblem> {
        let EverythingArguments { by } = setup.arguments()?;
        if by == 0.0 {
            return Err(FunctionProblem::new("`by` is 0"));
        }
        assert!(by > 0.0, "{by} is negative");
        Ok(Self { by })
    }

    fn call(&self, taken: &Taken<'_>, returned: &mut Returned<'_>, draw: &mut Draw) -> Result<(), FunctionProblem> {
        let text = std::str::from_utf8(taken.value("text")?.bytes())?;
        let rows = taken.value("rows")?;
        let number: i64 = taken.value("number")?.number()?;
        match text {
            "missing" => return returned.put("text", text.as_bytes()),
            "unknown" => return returned.put("other", text.as_bytes()),
            "type" => return returned.put("rows", &[1_u8]),
            "shape" => return returned.put("rows", &[1.0_f32; 3]),
            "many" => return returned.put("rows", &[1.0_f32; 8]),
            "huge" => return returned.place::<f32>("rows", usize::MAX).map(drop),
            "array" => return rows.number::<f32>().map(drop),
            "read" => return rows.elements::<i32>().map(drop),
            "take" => return taken.value("image").map(drop),
            "panic" => panic!("sample {number} is not liked"),
            "bad" => return Err(FunctionProblem::new("has no caption")),
            _ => {}
        }
        assert_eq!(rows.shape(), [rows.elements::<f32>()?.len() as u32 / 2, 2]);
        let scaled: Vec<f32> = rows.elements::<f32>()?.iter().map(|element| element * self.by).collect();
        returned.put("rows", &scaled)?;
        returned.put("text", text.repeat(2).as_bytes())?;
        returned.place::<u16>("sparse", 4)?[1] = 7;
        returned.put("draw", &[draw.unit()])
    }
}

fn value(name: &str, dtype: DType, shape: SampleShape) -> ValueType {
    ValueType { name: name.to_owned(), dtype, shape }
}

fn prepared(arguments: &str, version: u32) -> Result<PreparedFunction, FunctionRegistryError> {
    let rows = || value("rows", DType::F32, SampleShape::Rows { row: vec![2], max_rows: 3 });
    let text = |max_bytes| value("text", DType::U8, SampleShape::Bytes { max_bytes });
    let takes = vec![text(100), rows(), value("number", DType::I64, SampleShape::Fixed(vec![]))];
    let sparse = value("sparse", DType::Bf16, SampleShape::Fixed(vec![2, 2]));
    let returns = vec![rows(), text(14), sparse, value("draw", DType::F64, SampleShape::Fixed(vec![]))];
    let function = RustFunction { name: "tests::everything", version };
    let arguments = serde_json::from_str(arguments).unwrap();
    FunctionRegistry::new().with::<Everything>().prepare(function, arguments, takes, returns)
}

/// Calls the function with a text and rows. Returns the returned values, or why the sample is bad.
fn call(memory: &mut CallMemory, text: &str, rows: &[f32], id: u64) -> Result<Vec<Vec<u8>>, String> {
    let mut returned = Vec::new();
    let input = |number: usize, value: &mut ValueMemory| {
        let number_bytes = 9_i64.to_le_bytes();
        let bytes: &[u8] = [text.as_bytes(), bytemuck::cast_slice(rows), &number_bytes][number];
        value.use_bytes(bytes.len()).copy_from_slice(bytes);
        Ok(())
    };
    let output = |_: usize, bytes: &[u8]| returned.push(bytes.to_vec());
    let function = prepared("{ \"by\": 2.5 }", 3).unwrap();
    function.call(memory, CallKey { seed: 5, epoch: 1, id }, input, output, |problem| problem)?;
    Ok(returned)
}

#[test]
fn a_function_takes_and_returns_values_of_every_kind() {
    let mut memory = CallMemory::default();
    for (text, rows) in [("ab", &[1.0, 2.0, 3.0, 4.0][..]), ("", &[]), ("longest", &[1.0; 6])] {
        let returned = call(&mut memory, text, rows, 3).unwrap();
        let scaled: Vec<f32> = rows.iter().map(|element| element * 2.5).collect();
        assert_eq!(returned[0], bytemuck::cast_slice::<f32, u8>(&scaled));
        assert_eq!(returned[1], text.repeat(2).as_bytes());
        assert_eq!(returned[2], [0, 0, 7, 0, 0, 0, 0, 0], "a place is zero, whatever lay there");
        assert_eq!(returned[3], Draw::new(5, 1, 3).unit().to_le_bytes());
    }
    assert_ne!(call(&mut memory, "", &[], 4).unwrap()[3], call(&mut memory, "", &[], 3).unwrap()[3]);
}

#[test]
fn what_a_function_does_wrong_is_a_bad_sample_with_the_reason() {
    let mut memory = CallMemory::default();
    for (text, expected) in [
        ("missing", "returned no `rows`, which its job declares"),
        ("unknown", "returned `other`, which its job does not declare"),
        ("type", "`rows` has elements of type f32, not u8"),
        ("shape", "returned 3 elements of `rows`, and its job declares at most f32 [3, 2]"),
        ("many", "returned 8 elements of `rows`, and its job declares at most f32 [3, 2]"),
        ("huge", "elements of `rows`, and its job declares at most f32 [3, 2]"),
        ("longer than it may be", "returned 42 elements of `text`, and its job declares at most u8 [14]"),
        ("array", "takes `rows` as a number, and it is f32 [1, 2]"),
        ("read", "`rows` has elements of type f32, not i32"),
        ("take", "takes `image`, which its job does not give it"),
        ("panic", "panicked: sample 9 is not liked"),
        ("bad", "has no caption"),
    ] {
        let problem = call(&mut memory, text, &[1.0, 2.0], 3).unwrap_err();
        assert!(problem.contains(expected), "{text}: {problem}");
    }
    assert!(call(&mut memory, "ab", &[1.0, 2.0], 3).is_ok(), "the next sample is not affected");
}

#[test]
fn a_function_that_cannot_be_called_is_refused_with_the_reason() {
    let error = |arguments: &str, version| prepared(arguments, version).unwrap_err().to_string();
    assert_eq!(error("{ \"by\": 0.0 }", 3), "it cannot be prepared: `by` is 0");
    assert_eq!(error("{ \"by\": -1.0 }", 3), "it cannot be prepared: panicked: -1 is negative");
    assert_eq!(error("{}", 3), "it cannot be prepared: `arguments`: missing field `by`");
    let unknown = error("{ \"by\": 1.0, \"to\": 2 }", 3);
    assert!(unknown.starts_with("it cannot be prepared: `arguments`: unknown field `to`"), "{unknown}");
    assert_eq!(error("{}", 2), "it has version 3 of it");
    let other = |registry: FunctionRegistry| {
        let function = RustFunction { name: "tests::other", version: 1 };
        registry.prepare(function, Map::new(), Vec::new(), Vec::new()).unwrap_err().to_string()
    };
    assert_eq!(other(FunctionRegistry::new()), "it has no functions in Rust");
    assert_eq!(other(FunctionRegistry::new().with::<Everything>()), "it has `tests::everything@3`");
}

#[test]
#[should_panic(expected = "`tests::everything@3` is registered twice")]
fn a_function_is_registered_once() {
    let _ = FunctionRegistry::new().with::<Everything>().with::<Everything>();
}
