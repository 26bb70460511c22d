//! Renders conversations by a compiled template.

use std::{collections::HashSet, ops::Range};

use minijinja::{Environment, Error, Value, syntax::SyntaxConfig};

use super::{
    ChatError, ChatTemplate,
    conversation::{ChatMessage, Conversation},
    python,
    tags::{self, Tagged},
    template::SPECIAL_TOKENS,
};

/// The work that a template may do for one text, in instructions of 64 bytes: templates come from other people. The largest text is so
/// 64 times this number, 512 MiB, in bytes.
const FUEL: u64 = 1 << 23;
/// How deep macros and blocks may be nested.
const MAX_RECURSION: usize = 128;
const DEFAULT: &str = "default";
const TOOL_USE: &str = "tool_use";

/// A compiled template.
#[derive(Debug)]
pub(super) struct Renderer {
    name: String,
    environment: Environment<'static>,
    /// The text of the template, or templates.
    source: String,
    /// The lines with `{% generation %}` of the template, and of that for tools.
    lines: [Option<Vec<usize>>; 2],
    tokens: Vec<(String, Value)>,
    /// The names of the functions that the template can call.
    functions: HashSet<String>,
}

/// A text that a template wrote.
#[derive(Debug)]
pub(super) struct RenderedChat {
    pub(super) text: String,
    /// The bytes between `{% generation %}` and `{% endgeneration %}`.
    pub(super) generated: Vec<Range<usize>>,
    /// For each part of the template that wrote something: the end of its text, and its line.
    pub(super) parts: Vec<(usize, usize)>,
    /// The lines of the template with `{% generation %}`.
    pub(super) lines: Vec<usize>,
}

impl Renderer {
    /// Compiles a template. `now_unix_s` is the moment of `strftime_now`.
    pub(super) fn new(template: &ChatTemplate, now_unix_s: i64) -> Result<Renderer, ChatError> {
        let mut environment = environment(now_unix_s);
        let functions = environment.globals().map(|(name, _)| name.to_owned()).collect();
        let name = &template.name;
        let mut lines = [None, None];
        for (n, (of, text)) in
            [(DEFAULT, Some(&template.default)), (TOOL_USE, template.tool_use.as_ref())].iter().enumerate()
        {
            let Some(text) = text else { continue };
            // As Jinja does.
            let text = text.replace("\r\n", "\n").replace('\r', "\n");
            let tagged = Tagged::new(name, &text)?;
            lines[n] = Some(tagged.lines);
            environment.add_template_owned(*of, tagged.source).map_err(|error| refused(name, &error))?;
            let compiled = environment.get_template(of).map_err(|error| refused(name, &error))?;
            let used = compiled.undeclared_variables(false);
            if template.tokens.is_none()
                && let Some(token) = SPECIAL_TOKENS.iter().find(|token| used.contains(**token))
            {
                return Err(ChatError::template(
                    name,
                    None,
                    format!("it uses `{token}`, which the model's `tokenizer_config.json` tells: give that file too"),
                ));
            }
        }
        let source = [Some(&template.default), template.tool_use.as_ref()].into_iter().flatten().cloned();
        let tokens = template.tokens.iter().flatten().map(|(name, token)| (name.clone(), Value::from(token)));
        Ok(Renderer {
            name: name.clone(),
            environment,
            source: source.collect::<Vec<_>>().join("\n"),
            lines,
            tokens: tokens.collect(),
            functions,
        })
    }

    /// Returns the text of the template.
    pub(super) fn source(&self) -> &str {
        &self.source
    }

    /// Renders messages of a conversation, `prompt`: with what makes the model write the next turn.
    pub(super) fn render(
        &self,
        conversation: &Conversation,
        messages: &[ChatMessage],
        prompt: bool,
    ) -> Result<RenderedChat, ChatError> {
        let (name, lines) = match &self.lines[1] {
            Some(lines) if conversation.tools.is_true() => (TOOL_USE, lines),
            _ => (DEFAULT, self.lines[0].as_ref().expect("it is always there")),
        };
        let own = [
            ("messages".to_owned(), messages.iter().map(ChatMessage::value).collect()),
            ("tools".to_owned(), conversation.tools.clone()),
            ("documents".to_owned(), conversation.documents.clone()),
            ("add_generation_prompt".to_owned(), Value::from(prompt)),
        ];
        // Of equal names the last counts: no field of a record replaces one of those, nor a function.
        let others = conversation.others.iter().filter(|(name, _)| !self.functions.contains(name));
        let values = others.chain(&self.tokens).cloned().chain(own);
        let template = self.environment.get_template(name).map_err(|error| refused(&self.name, &error))?;
        let (marked, written) =
            template.render_with_spans(Value::from_pairs(values)).map_err(|error| refused(&self.name, &error))?;
        let (text, generated) = tags::take_marks(&marked);
        let (mut parts, mut at, mut taken) = (Vec::with_capacity(written.len()), 0, 0);
        for span in written {
            let end = span.output_range().end;
            taken += marked[at..end].matches([tags::BEGIN, tags::END]).count() * tags::BEGIN.len_utf8();
            parts.push((end - taken, span.line()));
            at = end;
        }
        Ok(RenderedChat { text, generated, parts, lines: lines.clone() })
    }

    /// Returns the template's name.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the error for a conversation of which nothing would be learned.
    pub(super) fn nothing_learned(&self) -> ChatError {
        let line = self.lines.iter().flatten().flatten().next().copied();
        let problem = if line.is_some() {
            "nothing of the conversation is inside `{% generation %}`, so no token would be learned"
        } else {
            "it writes nothing for the assistant's turns, so no token would be learned"
        };
        self.error(line, problem)
    }

    /// Returns an error about a line of the template.
    pub(super) fn error(&self, line: Option<usize>, problem: impl Into<String>) -> ChatError {
        ChatError::template(&self.name, line, problem)
    }
}

impl RenderedChat {
    /// Returns the line of the template that wrote a byte, or the last line that wrote something.
    pub(super) fn line(&self, at: usize) -> Option<usize> {
        let part = self.parts.partition_point(|(end, _)| *end <= at);
        self.parts.get(part).or(self.parts.last()).map(|(_, line)| *line)
    }

    /// Returns the last place up to `at` where a part of the template ends, or the text begins.
    pub(super) fn part_before(&self, at: usize) -> usize {
        let part = self.parts.partition_point(|(end, _)| *end <= at);
        part.checked_sub(1).map_or(0, |last| self.parts[last].0)
    }
}

/// Returns Jinja as transformers sets it up.
fn environment(now_unix_s: i64) -> Environment<'static> {
    let mut environment = Environment::new();
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
    environment.set_syntax(syntax.expect("the delimiters are the usual ones"));
    environment.set_unknown_method_callback(python::call_method);
    environment.add_filter("tojson", python::tojson);
    environment.add_filter("trim", |value: &Value, characters: Option<&str>| python::trim(value, characters));
    // To Python, none is no iterable.
    environment.add_test("iterable", |value: &Value| !value.is_none() && value.try_iter().is_ok());
    environment.add_function("raise_exception", |message: &Value| python::raise_exception(message));
    environment.add_function("strftime_now", python::strftime_now(now_unix_s));
    environment.set_fuel(Some(FUEL));
    environment.set_recursion_limit(MAX_RECURSION);
    environment
}

/// Returns a template's error with its line.
fn refused(name: &str, error: &Error) -> ChatError {
    let problem = error.detail().map_or_else(|| error.kind().to_string(), str::to_owned);
    let problem = match error.kind() {
        minijinja::ErrorKind::OutOfFuel => "it does more work for one conversation than is allowed".to_owned(),
        minijinja::ErrorKind::InvalidOperation | minijinja::ErrorKind::SyntaxError => problem,
        kind => format!("{kind}: {problem}"),
    };
    ChatError::template(name, error.line(), problem)
}
