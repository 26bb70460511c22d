//! Renders conversations by a compiled template.

use std::{collections::HashSet, ops::Range, sync::Arc};

use minijinja::{Environment, Error, Value, syntax::SyntaxConfig};

use super::{
    ChatError, ChatOptions, ChatTemplate, bounded,
    conversation::{ChatMessage, Conversation},
    python,
    tags::{self, Tagged},
    template::{NamedTemplate, SPECIAL_TOKENS},
};

/// How deep macros and blocks may be nested.
const MAX_RECURSION: usize = 128;

/// A compiled template, and that for conversations with tools, if it is another one.
#[derive(Debug)]
pub(super) struct Renderer {
    environment: Environment<'static>,
    /// The text of the template, or templates.
    source: String,
    default: Arc<CompiledTemplate>,
    tool_use: Option<Arc<CompiledTemplate>>,
    tokens: Vec<(String, Value)>,
    /// The names of the functions that the template can call.
    functions: HashSet<String>,
}

/// A template in the environment.
#[derive(Debug)]
pub(super) struct CompiledTemplate {
    /// Its name in the environment.
    key: &'static str,
    /// What errors call it.
    origin: String,
    /// The lines with `{% generation %}`.
    lines: Vec<usize>,
}

/// A text that a template wrote.
#[derive(Debug)]
pub(super) struct RenderedChat {
    pub(super) text: String,
    /// The bytes between `{% generation %}` and `{% endgeneration %}`.
    pub(super) generated: Vec<Range<usize>>,
    /// For each part of the template that wrote something: the end of its text, and its line.
    parts: Vec<(usize, usize)>,
    template: Arc<CompiledTemplate>,
}

impl Renderer {
    /// Compiles a template.
    pub(super) fn new(template: &ChatTemplate, options: &ChatOptions) -> Result<Renderer, ChatError> {
        let mut environment = environment(options);
        let functions = environment.globals().map(|(name, _)| name.to_owned()).collect();
        let (default, tool_use) = (template.default()?, template.tool_use());
        let mut compile = |key: &'static str, NamedTemplate { origin, text }: &NamedTemplate| {
            // As Jinja does.
            let text = text.replace("\r\n", "\n").replace('\r', "\n");
            let Tagged { source, lines } = Tagged::new(origin, &text)?;
            environment.add_template_owned(key, source).map_err(|error| refused(origin, &error))?;
            let compiled = environment.get_template(key).map_err(|error| refused(origin, &error))?;
            let used = compiled.undeclared_variables(false);
            if template.tokens.is_none()
                && let Some(token) = SPECIAL_TOKENS.iter().find(|token| used.contains(**token))
            {
                return Err(ChatError::template(
                    origin,
                    None,
                    format!("it uses `{token}`, which the model's `tokenizer_config.json` tells: give that file too"),
                ));
            }
            Ok(Arc::new(CompiledTemplate { key, origin: origin.clone(), lines }))
        };
        let compiled = (compile("default", default)?, tool_use.map(|text| compile("tool_use", text)).transpose()?);
        let source: Vec<_> = [Some(default), tool_use].into_iter().flatten().map(|one| one.text.as_str()).collect();
        let tokens = template.tokens.iter().flatten().map(|(name, token)| (name.clone(), Value::from(token)));
        Ok(Renderer {
            source: source.join("\n"),
            default: compiled.0,
            tool_use: compiled.1,
            tokens: tokens.collect(),
            environment,
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
        let template = self.tool_use.as_ref().filter(|_| conversation.tools.is_true()).unwrap_or(&self.default);
        let own = [
            ("messages".to_owned(), messages.iter().map(ChatMessage::value).collect()),
            ("tools".to_owned(), conversation.tools.clone()),
            ("documents".to_owned(), conversation.documents.clone()),
            ("add_generation_prompt".to_owned(), Value::from(prompt)),
        ];
        // Of equal names the last counts: no field of a record replaces one of those, nor a function.
        let others = conversation.others.iter().filter(|(name, _)| !self.functions.contains(name));
        let values = others.chain(&self.tokens).cloned().chain(own);
        let wrong = |error: Error| refused(&template.origin, &error);
        let compiled = self.environment.get_template(template.key).map_err(wrong)?;
        let (marked, written) = compiled.render_with_spans(Value::from_pairs(values)).map_err(wrong)?;
        let (text, generated) = tags::take_marks(&marked);
        let (mut parts, mut at, mut taken) = (Vec::with_capacity(written.len()), 0, 0);
        for span in written {
            let end = span.output_range().end;
            taken += marked[at..end].matches([tags::BEGIN, tags::END]).count() * tags::BEGIN.len_utf8();
            parts.push((end - taken, span.line()));
            at = end;
        }
        Ok(RenderedChat { text, generated, parts, template: Arc::clone(template) })
    }
}

impl RenderedChat {
    /// Returns the name of the template, as errors have it.
    pub(super) fn template(&self) -> &str {
        &self.template.origin
    }

    /// Returns whether the template has `{% generation %}`.
    pub(super) fn has_generation(&self) -> bool {
        !self.template.lines.is_empty()
    }

    /// Returns the error for a conversation of which nothing would be learned.
    pub(super) fn nothing_learned(&self) -> ChatError {
        let line = self.template.lines.first().copied();
        let problem = if line.is_some() {
            "nothing of the conversation is inside `{% generation %}`, so no token would be learned"
        } else {
            "it writes nothing for the assistant's turns, so no token would be learned"
        };
        ChatError::template(self.template(), line, problem)
    }

    /// Returns the error about the part of the template that wrote a byte.
    pub(super) fn error(&self, at: usize, problem: impl Into<String>) -> ChatError {
        ChatError::template(self.template(), self.line(at), problem)
    }

    /// Returns the line of the template that wrote a byte, or the last line that wrote something.
    fn line(&self, at: usize) -> Option<usize> {
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
fn environment(options: &ChatOptions) -> Environment<'static> {
    let mut environment = Environment::new();
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
    environment.set_syntax(syntax.expect("the delimiters are the usual ones"));
    environment.set_unknown_method_callback(python::call_method);
    environment.add_filter("tojson", python::tojson);
    environment.add_filter("trim", python::trim);
    // To Python, none is no iterable.
    environment.add_test("iterable", |value: &Value| !value.is_none() && value.try_iter().is_ok());
    environment.add_function("raise_exception", python::raise_exception);
    environment.add_function("strftime_now", python::strftime_now(options.now_unix_s));
    environment.set_formatter(bounded::write_value);
    environment.set_fuel(Some(options.max_work));
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
