//! A record of a chat dataset, in any of the forms that people use, as messages and the other values of a template.
//!
//! | form | fields |
//! |---|---|
//! | OpenAI | `messages`: `{role, content}`, with `tool_calls`, `weight` and whatever else a template reads |
//! | ShareGPT | `conversations`: `{from, value}` |
//! | Alpaca | `instruction`, `prompt`, `query` or `question`; `input` or `context`; `output`, `response`, `completion` or `answer` |
//! | prompt and completion | `prompt` and `completion`: texts, or lists of messages |

use minijinja::{Value, value::ValueKind};

use super::ChatError;

const MESSAGES: [&str; 4] = ["messages", "conversations", "conversation", "dialogue"];
const PROMPTS: [&str; 4] = ["instruction", "prompt", "query", "question"];
const INPUTS: [&str; 2] = ["input", "context"];
const COMPLETIONS: [&str; 4] = ["output", "response", "completion", "answer"];
const SYSTEMS: [&str; 2] = ["system", "system_prompt"];
/// Names of a message's reasoning; templates read the first, and those of gpt-oss the second.
const REASONING: [&str; 3] = ["reasoning_content", "thinking", "reasoning"];
/// The most messages of a conversation: a template is rendered up to five times for each that is learned.
const MAX_MESSAGES: usize = 4096;

/// The messages of a record, and what else the template can read.
#[derive(Debug, Clone)]
pub(super) struct Conversation {
    pub(super) messages: Vec<ChatMessage>,
    /// The tools, or none.
    pub(super) tools: Value,
    /// The documents, or none.
    pub(super) documents: Value,
    /// All other fields.
    pub(super) others: Vec<(String, Value)>,
}

/// A message of a conversation.
#[derive(Debug, Clone)]
pub(super) struct ChatMessage {
    /// Where it is in the record, as in `messages[2]`.
    pub(super) place: String,
    pub(super) role: String,
    /// Its fields as the template gets them, the role among them.
    fields: Vec<(String, Value)>,
    /// Its field `weight`: whether it is learned. None: as the options say.
    pub(super) weight: Option<bool>,
}

impl Conversation {
    /// Returns the conversation of a record. `template` is the template's text: a role that it names is known.
    pub(super) fn new(record: &Value, template: &str) -> Result<Conversation, ChatError> {
        if record.kind() != ValueKind::Map {
            return Err(wrong(format!("a record is an object with fields, not {}", kind(record))));
        }
        let mut reading = RecordReading { fields: pairs(record), template };
        let mut messages = reading.messages()?;
        let tools = reading.take("tools").map_or(Ok(Value::from(())), |tools| list_or_json("tools", tools))?;
        let documents = reading.take("documents").unwrap_or(Value::from(()));
        if let Some(system) = reading.take_first(&SYSTEMS).and_then(|(_, value)| text(&value).map(str::to_owned)) {
            let has_system = messages.first().is_some_and(|first| first.role == "system");
            if !has_system && !system.is_empty() {
                messages.insert(0, ChatMessage::of("system", "system", Value::from(system)));
            }
        }
        if messages.len() > MAX_MESSAGES {
            return Err(wrong(format!("it has {} messages; at most {MAX_MESSAGES} are rendered", messages.len())));
        }
        if !messages.iter().any(ChatMessage::is_assistant) {
            let roles: Vec<_> = messages.iter().map(|message| format!("`{}`", message.role)).collect();
            return Err(wrong(format!("it has no assistant turn; its roles are {}", roles.join(", "))));
        }
        Ok(Conversation { messages, tools, documents, others: reading.others() })
    }
}

impl ChatMessage {
    fn of(role: &str, place: &str, content: Value) -> ChatMessage {
        let fields = vec![("role".to_owned(), Value::from(role)), ("content".to_owned(), content)];
        ChatMessage { place: place.to_owned(), role: role.to_owned(), fields, weight: None }
    }

    /// Returns whether the model writes it.
    pub(super) fn is_assistant(&self) -> bool {
        self.role == "assistant"
    }

    /// Returns whether there is nothing in it for a model to learn.
    pub(super) fn is_empty(&self) -> bool {
        let filled = |name: &str| self.field(name).is_some_and(|value| !is_blank(value));
        !filled("content") && !filled("tool_calls") && !REASONING.iter().any(|name| filled(name))
    }

    pub(super) fn field(&self, name: &str) -> Option<&Value> {
        self.fields.iter().find(|(field, _)| field == name).map(|(_, value)| value)
    }

    /// Returns the message with another value of a field.
    pub(super) fn with(&self, name: &str, value: Value) -> ChatMessage {
        let mut message = self.clone();
        match message.fields.iter_mut().find(|(field, _)| field == name) {
            Some((_, old)) => *old = value,
            None => message.fields.push((name.to_owned(), value)),
        }
        message
    }

    /// Returns a message of the same role with nothing but a content.
    pub(super) fn answered(&self, content: Value) -> ChatMessage {
        ChatMessage::of(&self.role, &self.place, content)
    }

    /// Returns what the template gets.
    pub(super) fn value(&self) -> Value {
        Value::from_pairs(self.fields.iter().cloned())
    }
}

/// The fields of a record that are not read yet.
struct RecordReading<'t> {
    fields: Vec<(String, Value)>,
    template: &'t str,
}

impl RecordReading<'_> {
    /// Takes the messages, from the first form that the record has.
    fn messages(&mut self) -> Result<Vec<ChatMessage>, ChatError> {
        let names: Vec<_> = self.fields.iter().map(|(name, _)| format!("`{name}`")).collect();
        if let Some((name, messages)) = self.take_first(&MESSAGES) {
            return self.list(name, &messages);
        }
        let prompt = self.take_first(&PROMPTS);
        let input = self.take_first(&INPUTS);
        let (Some((asked, prompt)), Some((answered, completion))) = (prompt, self.take_first(&COMPLETIONS)) else {
            return Err(wrong(format!(
                "it has no conversation: its fields are {}; a chat has `messages`, `conversations`, or a prompt (`{}`) and \
                 a completion (`{}`)",
                if names.is_empty() { "none".to_owned() } else { names.join(", ") },
                PROMPTS.join("`, `"),
                COMPLETIONS.join("`, `")
            )));
        };
        let mut messages = match list(&prompt) {
            Some(_) => self.list(asked, &prompt)?,
            None => vec![ChatMessage::of("user", asked, Value::from(self.asked(asked, &prompt, input)?))],
        };
        // The prompt's turns are there to be answered, whoever wrote them.
        for message in messages.iter_mut().filter(|message| message.is_assistant() && message.weight.is_none()) {
            message.weight = Some(false);
        }
        match list(&completion) {
            Some(_) => messages.extend(self.list(answered, &completion)?),
            None => {
                let text = text(&completion).ok_or_else(|| not_text(answered, &completion))?;
                messages.push(ChatMessage::of("assistant", answered, Value::from(text)));
            }
        }
        Ok(messages)
    }

    /// Returns the prompt with its input below it.
    fn asked(&self, name: &str, prompt: &Value, input: Option<(&str, Value)>) -> Result<String, ChatError> {
        let prompt = text(prompt).ok_or_else(|| not_text(name, prompt))?;
        let Some((name, input)) = input else { return Ok(prompt.to_owned()) };
        let input = text(&input).ok_or_else(|| not_text(name, &input))?.to_owned();
        Ok(if input.is_empty() { prompt.to_owned() } else { format!("{prompt}\n{input}") })
    }

    fn list(&self, name: &str, messages: &Value) -> Result<Vec<ChatMessage>, ChatError> {
        let messages = list(messages).ok_or_else(|| wrong(format!("`{name}` is {}, not a list", kind(messages))))?;
        let read = messages.iter().enumerate().map(|(n, message)| self.message(format!("{name}[{n}]"), message));
        read.collect()
    }

    fn message(&self, place: String, message: &Value) -> Result<ChatMessage, ChatError> {
        if message.kind() != ValueKind::Map {
            return Err(wrong(format!("`{place}` is {}, not an object", kind(message))));
        }
        // As transformers does: many templates write the word `None` for a field without a value.
        let mut fields: Vec<_> = pairs(message).into_iter().filter(|(_, value)| !value.is_none()).collect();
        let names: Vec<_> = fields.iter().map(|(name, _)| format!("`{name}`")).collect();
        for (from, to) in [("from", "role"), ("value", "content")] {
            if !fields.iter().any(|(name, _)| name == to)
                && let Some((name, _)) = fields.iter_mut().find(|(name, _)| name == from)
            {
                *name = to.to_owned();
            }
        }
        let mut message = ChatMessage { place, role: String::new(), fields, weight: None };
        let Some(role) = message.field("role").and_then(text).map(str::to_owned) else {
            let place = &message.place;
            return Err(wrong(format!("`{place}` has no `role` (or `from`); its fields are {}", names.join(", "))));
        };
        self.set_role(&mut message, &role)?;
        check_content(&message)?;
        message.weight = weight(&message)?;
        set_reasoning(&mut message);
        Ok(message)
    }

    /// Sets the role by the name that the record gives it.
    fn set_role(&self, message: &mut ChatMessage, name: &str) -> Result<(), ChatError> {
        let known = match name {
            "system" | "user" | "assistant" | "tool" | "developer" => name,
            "human" => "user",
            "gpt" | "model" | "bot" | "chatgpt" | "bing" | "bard" => "assistant",
            "function_call" => return set_call(message),
            _ if self.names(name) => name,
            "observation" | "function" | "tool_response" | "function_response" | "ipython" | "environment" => "tool",
            _ => {
                return Err(wrong(format!(
                    "`{}` has the role `{name}`; known are system, user (human), assistant (gpt, model, bot), tool \
                     (observation, function) and the roles that the template names",
                    message.place
                )));
            }
        };
        known.clone_into(&mut message.role);
        *message = message.with("role", Value::from(known));
        Ok(())
    }

    /// Returns whether the template has this text in quotes.
    fn names(&self, role: &str) -> bool {
        ["'", "\""].iter().any(|quote| self.template.contains(&format!("{quote}{role}{quote}")))
    }

    fn take(&mut self, name: &str) -> Option<Value> {
        let at = self.fields.iter().position(|(field, _)| field == name)?;
        Some(self.fields.remove(at).1).filter(|value| !value.is_none())
    }

    fn take_first<'n>(&mut self, names: &[&'n str]) -> Option<(&'n str, Value)> {
        names.iter().find_map(|name| Some((*name, self.take(name)?)))
    }

    /// Returns what is left for the template; the fields of `chat_template_kwargs` as if they were the record's own.
    fn others(mut self) -> Vec<(String, Value)> {
        let arguments = self.take("chat_template_kwargs").filter(|value| value.kind() == ValueKind::Map);
        let mut others = self.fields;
        for (name, value) in arguments.iter().flat_map(pairs) {
            others.retain(|(other, _)| *other != name);
            others.push((name, value));
        }
        others
    }
}

/// Makes of ShareGPT's `function_call`, whose value is JSON, a turn of the assistant that calls a tool.
fn set_call(message: &mut ChatMessage) -> Result<(), ChatError> {
    let place = &message.place;
    let value = message.field("content").cloned().unwrap_or_default();
    let calls = list_or_json(&format!("{place}.value"), value)?;
    let calls = list(&calls)
        .unwrap_or_else(|| vec![calls])
        .into_iter()
        .map(|call| Value::from_pairs([("type", Value::from("function")), ("function", call)]));
    message.fields = vec![("role".to_owned(), Value::from("assistant")), ("tool_calls".to_owned(), calls.collect())];
    "assistant".clone_into(&mut message.role);
    Ok(())
}

/// Gives the reasoning the names that templates read, as transformers does.
fn set_reasoning(message: &mut ChatMessage) {
    let Some(reasoning) = REASONING.iter().find_map(|name| message.field(name)).cloned() else { return };
    if message.field("thinking").is_none() {
        *message = message.with("thinking", reasoning.clone());
    }
    *message = message.with("reasoning_content", reasoning);
}

fn check_content(message: &ChatMessage) -> Result<(), ChatError> {
    let Some(content) = message.field("content") else { return Ok(()) };
    let place = &message.place;
    if text(content).is_some() {
        return Ok(());
    }
    let parts = list(content).ok_or_else(|| wrong(format!("`{place}.content` is {}, not a text", kind(content))))?;
    for (n, part) in parts.iter().enumerate() {
        let of_type = part.get_attr("type").unwrap_or_default();
        if part.get_attr("text").is_ok_and(|part| text(&part).is_none()) && text(part).is_none() {
            let of_type =
                text(&of_type).map_or_else(|| kind(part).to_owned(), |of_type| format!("of type `{of_type}`"));
            return Err(wrong(format!("`{place}.content[{n}]` is {of_type}; only parts with a `text` become tokens")));
        }
    }
    Ok(())
}

fn weight(message: &ChatMessage) -> Result<Option<bool>, ChatError> {
    let Some(weight) = message.field("weight") else { return Ok(None) };
    let weight = match f64::try_from(weight.clone()) {
        Ok(0.0) => false,
        Ok(1.0) => true,
        _ if weight.kind() == ValueKind::Bool => weight.is_true(),
        _ => return Err(wrong(format!("`{}.weight` is `{weight}`; it is 0 or 1", message.place))),
    };
    if weight && !message.is_assistant() {
        return Err(wrong(format!(
            "`{}.weight` is 1, but its role is `{}`: only turns of the assistant are learned one by one",
            message.place, message.role
        )));
    }
    Ok(Some(weight))
}

/// Returns a list or object, which can also be JSON in a text.
fn list_or_json(name: &str, value: Value) -> Result<Value, ChatError> {
    match text(&value) {
        Some(json) if json.trim().is_empty() => Ok(Value::from(())),
        Some(json) => serde_json::from_str(json).map_err(|error| wrong(format!("`{name}` is no JSON: {error}"))),
        None => Ok(value),
    }
}

fn is_blank(value: &Value) -> bool {
    match text(value) {
        Some(text) => text.trim().is_empty(),
        None => list(value).is_some_and(|parts| {
            parts
                .iter()
                .all(|part| text(&part.get_attr("text").unwrap_or_default()).is_some_and(|t| t.trim().is_empty()))
        }),
    }
}

fn text(value: &Value) -> Option<&str> {
    value.as_str()
}

fn list(value: &Value) -> Option<Vec<Value>> {
    (value.kind() == ValueKind::Seq).then(|| value.try_iter().into_iter().flatten().collect())
}

fn pairs(map: &Value) -> Vec<(String, Value)> {
    let names = map.try_iter().into_iter().flatten();
    names.map(|name| (name.to_string(), map.get_item(&name).unwrap_or_default())).collect()
}

/// Returns what a value is, in JSON's words.
fn kind(value: &Value) -> &'static str {
    match value.kind() {
        ValueKind::Undefined | ValueKind::None => "null",
        ValueKind::Bool => "a boolean",
        ValueKind::Number => "a number",
        ValueKind::String => "a text",
        ValueKind::Seq => "a list",
        _ => "an object",
    }
}

fn not_text(name: &str, value: &Value) -> ChatError {
    wrong(format!("`{name}` is {}, not a text", kind(value)))
}

fn wrong(problem: String) -> ChatError {
    ChatError::Conversation(problem)
}
