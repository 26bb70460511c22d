//! Evaluates an expression for one record.

use std::cmp::Ordering;

use super::{
    parse::{ExpressionNode, Literal, Operand},
    token::ComparisonOperator,
};

/// Upper limit of the characters of a text that an error repeats.
const MAX_SHOWN: usize = 40;

/// The value of a field.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'v> {
    /// The record has no such field, or no value in it.
    Null,
    /// True or false.
    Bool(bool),
    /// A whole number.
    Int(i128),
    /// A number in single precision. Numbers of the expression are rounded to it before they are compared.
    F32(f32),
    /// A number in double precision.
    F64(f64),
    /// A text.
    Text(&'v str),
    /// The text of a file. It is parsed as a number or as `true` or `false` if it is compared with one.
    Untyped(&'v str),
    /// A value that can only be tested for null. The text is the noun for it: `a list`.
    Opaque(&'static str),
}

/// The evaluation of an expression for one record.
pub(super) struct ExpressionEvaluation<'e, 'v> {
    pub(super) names: &'e [(String, usize)],
    pub(super) value: &'e dyn Fn(usize) -> Value<'v>,
}

/// The place in the text, and what is wrong there.
type EvaluationProblem = (usize, String);

impl<'v> ExpressionEvaluation<'_, 'v> {
    /// Returns whether a part of the expression is true; `None` if that depends on a missing value.
    pub(super) fn truth(&self, node: &ExpressionNode) -> Result<Option<bool>, EvaluationProblem> {
        match node {
            ExpressionNode::And(parts) => self.any(parts, false),
            ExpressionNode::Or(parts) => self.any(parts, true),
            ExpressionNode::Not(part) => Ok(self.truth(part)?.map(|truth| !truth)),
            ExpressionNode::Compare(comparison, [left, right], at) => {
                let [a, b] = [left, right].map(|operand| self.of(operand));
                let ordering = match compare(a, b) {
                    Ok(ordering) => ordering,
                    Err(()) => return Err((*at, self.mismatch(left, a, right, b))),
                };
                Ok(ordering.map(|ordering| match (comparison, ordering) {
                    // NaN is neither less than, nor greater than, nor equal to a number.
                    (ComparisonOperator::NotEqual, None) => true,
                    (_, None) => false,
                    (ComparisonOperator::Equal, Some(ordering)) => ordering.is_eq(),
                    (ComparisonOperator::NotEqual, Some(ordering)) => ordering.is_ne(),
                    (ComparisonOperator::Less, Some(ordering)) => ordering.is_lt(),
                    (ComparisonOperator::LessOrEqual, Some(ordering)) => ordering.is_le(),
                    (ComparisonOperator::Greater, Some(ordering)) => ordering.is_gt(),
                    (ComparisonOperator::GreaterOrEqual, Some(ordering)) => ordering.is_ge(),
                }))
            }
            ExpressionNode::In(operand, list, at) => {
                let value = self.of(operand);
                for literal in list {
                    match compare(value, literal.value()) {
                        Ok(None) => return Ok(None),
                        Ok(Some(Some(Ordering::Equal))) => return Ok(Some(true)),
                        Ok(_) => {}
                        Err(()) => {
                            let literal = Operand::Literal(literal.clone());
                            return Err((*at, self.mismatch(operand, value, &literal, self.of(&literal))));
                        }
                    }
                }
                Ok(if value == Value::Null { None } else { Some(false) })
            }
            ExpressionNode::IsNull(operand) => Ok(Some(self.of(operand) == Value::Null)),
            ExpressionNode::Is(operand, at) => match self.of(operand) {
                Value::Null => Ok(None),
                Value::Bool(truth) => Ok(Some(truth)),
                Value::Untyped(text) if truth_of(text).is_some() => Ok(truth_of(text)),
                value => Err((*at, format!("{} is {}, not true or false", self.called(operand), described(value)))),
            },
        }
    }

    /// Returns `wanted` if any part has this value; otherwise its opposite, or `None` if the value of a part is
    /// unknown.
    fn any(&self, parts: &[ExpressionNode], wanted: bool) -> Result<Option<bool>, EvaluationProblem> {
        let mut unknown = false;
        for part in parts {
            match self.truth(part)? {
                Some(truth) if truth == wanted => return Ok(Some(wanted)),
                Some(_) => {}
                None => unknown = true,
            }
        }
        Ok((!unknown).then_some(!wanted))
    }

    fn of<'o>(&self, operand: &'o Operand) -> Value<'o>
    where
        'v: 'o,
    {
        match operand {
            Operand::Field(name) => (self.value)(*name),
            Operand::Literal(literal) => literal.value(),
        }
    }

    fn called(&self, operand: &Operand) -> String {
        match operand {
            Operand::Field(name) => format!("field `{}`", self.names[*name].0),
            Operand::Literal(literal) => literal.noun().to_owned(),
        }
    }

    fn mismatch(&self, left: &Operand, a: Value<'_>, right: &Operand, b: Value<'_>) -> String {
        // The field is the subject; with two fields the left one.
        let [(subject, value), (other, with)] = match left {
            Operand::Field(_) => [(left, a), (right, b)],
            Operand::Literal(_) => [(right, b), (left, a)],
        };
        let with = match other {
            Operand::Field(_) => format!("{}, {}", self.called(other), described(with)),
            Operand::Literal(literal) => literal.noun().to_owned(),
        };
        format!("{} is {}, and is compared with {with}", self.called(subject), described(value))
    }
}

impl Literal {
    const fn value(&self) -> Value<'_> {
        match self {
            Self::Bool(value) => Value::Bool(*value),
            Self::Int(number) => Value::Int(*number),
            Self::Float(number) => Value::F64(*number),
            Self::Text(text) => Value::Text(text.as_str()),
        }
    }
}

fn described(value: Value<'_>) -> String {
    let text = |text: &str| -> String { text.chars().take(MAX_SHOWN).collect() };
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Int(number) => format!("the number {number}"),
        Value::F32(number) => format!("the number {number}"),
        Value::F64(number) => format!("the number {number}"),
        Value::Text(value) | Value::Untyped(value) => format!("the text '{}'", text(value)),
        Value::Opaque(what) => what.to_owned(),
    }
}

/// Compares two values: `Err` if they have types that cannot be compared, `Ok(None)` if one is null, `Ok(Some(None))` if
/// one is not a number.
fn compare(left: Value<'_>, right: Value<'_>) -> Result<Option<Option<Ordering>>, ()> {
    let ordering = match (left, right) {
        (Value::Null, _) | (_, Value::Null) => return Ok(None),
        (Value::Opaque(_), _) | (_, Value::Opaque(_)) => return Err(()),
        (Value::Text(a) | Value::Untyped(a), Value::Text(b) | Value::Untyped(b)) => Some(a.cmp(b)),
        (Value::Untyped(a), b) => return compare(typed(a, b)?, b),
        (a, Value::Untyped(b)) => return compare(a, typed(b, a)?),
        (Value::Bool(a), Value::Bool(b)) => Some(a.cmp(&b)),
        (Value::Int(a), Value::Int(b)) => Some(a.cmp(&b)),
        (Value::F32(a), Value::F32(b)) => a.partial_cmp(&b),
        (Value::F32(a), Value::F64(b)) => a.partial_cmp(&(b as f32)),
        (Value::F64(a), Value::F32(b)) => (a as f32).partial_cmp(&b),
        (Value::F64(a), Value::F64(b)) => a.partial_cmp(&b),
        (Value::Int(a), Value::F32(b)) => int_and_float(a, b.into()),
        (Value::Int(a), Value::F64(b)) => int_and_float(a, b),
        (Value::F32(a), Value::Int(b)) => int_and_float(b, a.into()).map(Ordering::reverse),
        (Value::F64(a), Value::Int(b)) => int_and_float(b, a).map(Ordering::reverse),
        (Value::Bool(_) | Value::Int(_) | Value::F32(_) | Value::F64(_) | Value::Text(_), _) => return Err(()),
    };
    Ok(Some(ordering))
}

/// Compares exactly, without rounding; `None` if the float is NaN.
fn int_and_float(int: i128, float: f64) -> Option<Ordering> {
    // The cast saturates.
    let whole = float.trunc();
    Some(match int.cmp(&(whole as i128)) {
        _ if float.is_nan() => return None,
        Ordering::Equal => whole.partial_cmp(&float)?,
        ordering => ordering,
    })
}

/// Reads the text of a file as a value of the type of `other`.
fn typed<'v>(text: &'v str, other: Value<'_>) -> Result<Value<'v>, ()> {
    match other {
        Value::Bool(_) => truth_of(text).map(Value::Bool).ok_or(()),
        _ => match text.parse::<i128>() {
            Ok(number) => Ok(Value::Int(number)),
            Err(_) => text.parse::<f64>().map(Value::F64).map_err(|_| ()),
        },
    }
}

fn truth_of(text: &str) -> Option<bool> {
    match text {
        "true" | "True" => Some(true),
        "false" | "False" => Some(false),
        _ => None,
    }
}
