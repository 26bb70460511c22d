//! Parses the tokens of an expression by recursive descent.

use super::{
    ExpressionError, error_at,
    token::{ComparisonOperator, Token, tokens},
};

/// The most parentheses and negations inside each other.
const MAX_DEPTH: u32 = 100;

/// A part of an expression that is true, false, or neither.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ExpressionNode {
    And(Vec<ExpressionNode>),
    Or(Vec<ExpressionNode>),
    Not(Box<ExpressionNode>),
    /// The comparison stands at this place in the text.
    Compare(ComparisonOperator, [Operand; 2], usize),
    In(Operand, Vec<Literal>, usize),
    IsNull(Operand),
    /// An operand that is true or false by itself.
    Is(Operand, usize),
}

impl ExpressionNode {
    /// Returns whether a value of this name is compared, or taken as true or false.
    pub(super) fn compares(&self, name: usize) -> bool {
        let is_name = |operand: &Operand| *operand == Operand::Field(name);
        match self {
            Self::And(parts) | Self::Or(parts) => parts.iter().any(|part| part.compares(name)),
            Self::Not(part) => part.compares(name),
            Self::Compare(_, operands, _) => operands.iter().any(is_name),
            Self::In(operand, ..) | Self::Is(operand, _) => is_name(operand),
            Self::IsNull(_) => false,
        }
    }

    /// Adds the texts that a value of this name is compared with.
    pub(super) fn texts<'n>(&'n self, name: usize, texts: &mut Vec<&'n str>) {
        let is_name = |operand: &Operand| *operand == Operand::Field(name);
        match self {
            Self::And(parts) | Self::Or(parts) => parts.iter().for_each(|part| part.texts(name, texts)),
            Self::Not(part) => part.texts(name, texts),
            Self::Compare(_, operands, _) if operands.iter().any(is_name) => {
                texts.extend(operands.iter().filter_map(|operand| match operand {
                    Operand::Literal(literal) => literal.text(),
                    Operand::Field(_) => None,
                }));
            }
            Self::In(operand, list, _) if is_name(operand) => texts.extend(list.iter().filter_map(Literal::text)),
            Self::Compare(..) | Self::In(..) | Self::IsNull(_) | Self::Is(..) => {}
        }
    }
}

impl Literal {
    fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Bool(_) | Self::Int(_) | Self::Float(_) => None,
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Operand {
    /// The number of a name.
    Field(usize),
    Literal(Literal),
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Literal {
    Bool(bool),
    Int(i128),
    Float(f64),
    Text(String),
}

/// A parsed part: a truth value, or an operand of a comparison. An expression in parentheses is a truth value, so it
/// cannot be compared.
enum ParsedPart {
    Node(ExpressionNode),
    Operand(Operand),
}

/// Parses an expression; returns it with its names and their places.
pub(super) fn parse(text: &str) -> Result<(ExpressionNode, Vec<(String, usize)>), ExpressionError> {
    let mut parser = Parser { text, tokens: tokens(text)?, next: 0, depth: 0, names: Vec::new() };
    let root = parser.or()?;
    match parser.peek() {
        Token::End => Ok((root, parser.names)),
        Token::Close => Err(parser.error("this parenthesis closes nothing")),
        _ => Err(parser.error("`and`, `or` or the end is expected")),
    }
}

struct Parser<'t> {
    text: &'t str,
    tokens: Vec<(Token, usize)>,
    next: usize,
    depth: u32,
    names: Vec<(String, usize)>,
}

impl Parser<'_> {
    fn peek(&self) -> &Token {
        &self.tokens[self.next].0
    }

    fn place(&self) -> usize {
        self.tokens[self.next].1
    }

    fn error(&self, problem: &str) -> ExpressionError {
        error_at(self.text, self.place(), problem)
    }

    /// Goes past the next token if it is this one.
    fn skip(&mut self, token: &Token) -> bool {
        let is_next = self.peek() == token;
        self.next += usize::from(is_next);
        is_next
    }

    fn or(&mut self) -> Result<ExpressionNode, ExpressionError> {
        let mut parts = vec![self.and()?];
        while self.skip(&Token::Word("or")) {
            parts.push(self.and()?);
        }
        Ok(if parts.len() == 1 { parts.remove(0) } else { ExpressionNode::Or(parts) })
    }

    fn and(&mut self) -> Result<ExpressionNode, ExpressionError> {
        let mut parts = vec![self.not()?];
        while self.skip(&Token::Word("and")) {
            parts.push(self.not()?);
        }
        Ok(if parts.len() == 1 { parts.remove(0) } else { ExpressionNode::And(parts) })
    }

    fn not(&mut self) -> Result<ExpressionNode, ExpressionError> {
        if !self.skip(&Token::Word("not")) {
            return self.comparison();
        }
        self.nested(|parser| Ok(ExpressionNode::Not(Box::new(parser.not()?))))
    }

    fn nested<T>(&mut self, parse: impl FnOnce(&mut Self) -> Result<T, ExpressionError>) -> Result<T, ExpressionError> {
        if self.depth == MAX_DEPTH {
            return Err(self.error("this is nested too deeply"));
        }
        self.depth += 1;
        let parsed = parse(self);
        self.depth -= 1;
        parsed
    }

    fn comparison(&mut self) -> Result<ExpressionNode, ExpressionError> {
        let start = self.place();
        let operand = match self.part()? {
            ParsedPart::Node(node) => {
                return match self.peek() {
                    Token::Comparison(_) | Token::Word("in" | "is") => {
                        Err(self.error("what is in parentheses is true or false and cannot be compared"))
                    }
                    _ => Ok(node),
                };
            }
            ParsedPart::Operand(operand) => operand,
        };
        let at = self.place();
        match *self.peek() {
            Token::Comparison(comparison) => {
                self.next += 1;
                let right_at = self.place();
                let ParsedPart::Operand(right) = self.part()? else {
                    return Err(error_at(self.text, right_at, "a number, a text in quotes or a name is expected"));
                };
                if let [Operand::Literal(left), Operand::Literal(other)] = [&operand, &right] {
                    let problem = format!("{} and {} are no fields", left.shown(), other.shown());
                    return Err(error_at(self.text, start, problem));
                }
                Ok(ExpressionNode::Compare(comparison, [operand, right], at))
            }
            Token::Word("is") => {
                self.next += 1;
                let is_not = self.skip(&Token::Word("not"));
                if !self.skip(&Token::Word("null")) {
                    return Err(self.error("`null` is expected after `is`; write == to compare"));
                }
                let node = ExpressionNode::IsNull(operand);
                Ok(if is_not { ExpressionNode::Not(Box::new(node)) } else { node })
            }
            Token::Word("in") => {
                self.next += 1;
                self.list(operand, at)
            }
            Token::Word("not") if self.tokens[self.next + 1].0 == Token::Word("in") => {
                self.next += 2;
                Ok(ExpressionNode::Not(Box::new(self.list(operand, at)?)))
            }
            _ if matches!(operand, Operand::Field(_) | Operand::Literal(Literal::Bool(_))) => {
                Ok(ExpressionNode::Is(operand, start))
            }
            _ => Err(self.error("a comparison is expected, such as == or <")),
        }
    }

    fn part(&mut self) -> Result<ParsedPart, ExpressionError> {
        let (token, at) = self.tokens[self.next].clone();
        let literal = match token {
            Token::Open => {
                self.next += 1;
                let node = self.nested(Self::or)?;
                if !self.skip(&Token::Close) {
                    return Err(self.error("a closing parenthesis is expected"));
                }
                return Ok(ParsedPart::Node(node));
            }
            Token::Name(name) => {
                self.next += 1;
                let known = self.names.iter().position(|(known, _)| *known == name);
                let number = known.unwrap_or_else(|| {
                    self.names.push((name, at));
                    self.names.len() - 1
                });
                return Ok(ParsedPart::Operand(Operand::Field(number)));
            }
            token => Literal::of(&token),
        };
        let literal = match literal {
            Some(literal) => literal,
            None if *self.peek() == Token::Word("null") => return Err(self.error("write `is null` or `is not null`")),
            None => return Err(self.error("a number, a text in quotes or a name is expected")),
        };
        self.next += 1;
        Ok(ParsedPart::Operand(Operand::Literal(literal)))
    }

    fn list(&mut self, operand: Operand, at: usize) -> Result<ExpressionNode, ExpressionError> {
        if !self.skip(&Token::OpenList) {
            return Err(self.error("a list is expected, such as ['train', 'test']"));
        }
        let mut list: Vec<Literal> = Vec::new();
        while !self.skip(&Token::CloseList) {
            if !list.is_empty() && !self.skip(&Token::Comma) {
                return Err(self.error("a comma or ] is expected"));
            }
            let Some(literal) = Literal::of(self.peek()) else {
                return Err(self.error("a number, a text in quotes, true or false is expected"));
            };
            if list.first().is_some_and(|first| first.noun() != literal.noun()) {
                let problem = format!("the list begins with {}, and this is {}", list[0].shown(), literal.shown());
                return Err(self.error(&problem));
            }
            self.next += 1;
            list.push(literal);
        }
        Ok(ExpressionNode::In(operand, list, at))
    }
}

impl Literal {
    fn of(token: &Token) -> Option<Self> {
        Some(match token {
            Token::Int(number) => Self::Int(*number),
            Token::Float(number) => Self::Float(*number),
            Token::Text(text) => Self::Text(text.clone()),
            Token::Word("true") => Self::Bool(true),
            Token::Word("false") => Self::Bool(false),
            _ => return None,
        })
    }

    /// Returns the noun for its type.
    pub(super) const fn noun(&self) -> &'static str {
        match self {
            Self::Bool(_) => "true or false",
            Self::Int(_) | Self::Float(_) => "a number",
            Self::Text(_) => "a text",
        }
    }

    fn shown(&self) -> String {
        match self {
            Self::Bool(value) => value.to_string(),
            Self::Int(number) => number.to_string(),
            Self::Float(number) => number.to_string(),
            Self::Text(text) => format!("'{text}'"),
        }
    }
}
