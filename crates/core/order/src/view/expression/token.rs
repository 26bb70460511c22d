//! Cuts the text of an expression into tokens.

use super::{ExpressionError, error_at};

/// How two operands are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ComparisonOperator {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token {
    Name(String),
    Text(String),
    Int(i128),
    Float(f64),
    Comparison(ComparisonOperator),
    Open,
    Close,
    OpenList,
    CloseList,
    Comma,
    /// One of the words of the language, in lower case.
    Word(&'static str),
    End,
}

const WORDS: [&str; 8] = ["and", "or", "not", "in", "is", "null", "true", "false"];

const SYMBOLS: [(&str, Token); 13] = [
    ("==", Token::Comparison(ComparisonOperator::Equal)),
    ("!=", Token::Comparison(ComparisonOperator::NotEqual)),
    ("<>", Token::Comparison(ComparisonOperator::NotEqual)),
    ("<=", Token::Comparison(ComparisonOperator::LessOrEqual)),
    (">=", Token::Comparison(ComparisonOperator::GreaterOrEqual)),
    ("<", Token::Comparison(ComparisonOperator::Less)),
    (">", Token::Comparison(ComparisonOperator::Greater)),
    ("=", Token::Comparison(ComparisonOperator::Equal)),
    ("(", Token::Open),
    (")", Token::Close),
    ("[", Token::OpenList),
    ("]", Token::CloseList),
    (",", Token::Comma),
];

/// Returns the tokens, each with the place where it begins; the last one is [`Token::End`].
pub(super) fn tokens(text: &str) -> Result<Vec<(Token, usize)>, ExpressionError> {
    let mut found = Vec::new();
    let mut at = 0;
    loop {
        at += text[at..].len() - text[at..].trim_start().len();
        let rest = &text[at..];
        let Some(first) = rest.chars().next() else {
            found.push((Token::End, at));
            return Ok(found);
        };
        let is_number = first.is_ascii_digit()
            || ['-', '+', '.'].contains(&first) && rest[1..].starts_with(|c: char| c.is_ascii_digit() || c == '.');
        let (token, bytes) = match first {
            '\'' | '"' | '`' => quoted(text, at, first)?,
            _ if is_number => number(text, at)?,
            _ if first.is_alphabetic() || first == '_' => word(rest),
            _ => match SYMBOLS.iter().find(|(symbol, _)| rest.starts_with(symbol)) {
                Some((symbol, token)) => (token.clone(), symbol.len()),
                None => return Err(error_at(text, at, format!("`{first}` means nothing here"))),
            },
        };
        found.push((token, at));
        at += bytes;
    }
}

/// Reads a text in quotes, or a name in backticks. A quote in it is written twice.
fn quoted(text: &str, at: usize, quote: char) -> Result<(Token, usize), ExpressionError> {
    let (mut content, mut chars) = (String::new(), text[at + 1..].char_indices().peekable());
    while let Some((offset, c)) = chars.next() {
        if c != quote {
            content.push(c);
        } else if chars.next_if(|(_, next)| *next == quote).is_some() {
            content.push(quote);
        } else {
            let token = if quote == '`' { Token::Name(content) } else { Token::Text(content) };
            return Ok((token, offset + 2));
        }
    }
    Err(error_at(text, at, format!("the closing {quote} is missing")))
}

fn number(text: &str, at: usize) -> Result<(Token, usize), ExpressionError> {
    let mut bytes = 0;
    let mut before = ' ';
    for c in text[at..].chars() {
        let is_sign = ['-', '+'].contains(&c) && (bytes == 0 || ['e', 'E'].contains(&before));
        if !is_sign && !c.is_alphanumeric() && c != '.' && c != '_' {
            break;
        }
        (before, bytes) = (c, bytes + c.len_utf8());
    }
    let digits = text[at..at + bytes].replace('_', "");
    let token = match digits.parse::<i128>() {
        Ok(number) => Token::Int(number),
        Err(_) => match digits.parse::<f64>() {
            Ok(number) if number.is_finite() => Token::Float(number),
            _ => return Err(error_at(text, at, "this is not a number")),
        },
    };
    Ok((token, bytes))
}

/// Reads a word of the language or a name.
fn word(rest: &str) -> (Token, usize) {
    let bytes = rest.find(|c: char| !c.is_alphanumeric() && !['_', '.', '/'].contains(&c)).unwrap_or(rest.len());
    let word = &rest[..bytes];
    let token = match WORDS.iter().find(|known| known.eq_ignore_ascii_case(word)) {
        Some(known) => Token::Word(known),
        None => Token::Name(word.to_owned()),
    };
    (token, bytes)
}
