//! What of a rendered conversation is learned.
//!
//! Without `{% generation %}`, the place of a turn is found by rendering the conversation again: up to the turn with the prompt for it, and up
//! to and with the turn. What the second text has beyond the first is the turn, its end included, as where `{% generation %}` is put by
//! hand. Some templates write earlier turns in another way than the last ones (Qwen3 leaves out their thinking, gpt-oss ends the last turn
//! otherwise, Mistral puts the tools before the last question), so that these texts are no beginnings of the whole. The same comparison is then
//! made of what follows the content of a message, whose place shows when a mark is rendered in place of the content.

use std::ops::Range;

use minijinja::Value;

use super::{
    ChatError, TrainOn,
    conversation::{ChatMessage, Conversation},
    render::{RenderedChat, Renderer},
    tags::{ANSWER, CONTENT},
};

const MARK_BY_HAND: &str = "put `{% generation %}` and `{% endgeneration %}` around what the model writes";

/// The turns of a rendered conversation.
pub(super) struct Turns<'c> {
    renderer: &'c Renderer,
    conversation: &'c Conversation,
    rendered: &'c RenderedChat,
}

/// A message with a mark in it, and the text that the mark replaced.
struct Marked {
    message: ChatMessage,
    replaced: String,
}

impl<'c> Turns<'c> {
    /// `rendered` is the whole conversation.
    pub(super) fn new(renderer: &'c Renderer, conversation: &'c Conversation, rendered: &'c RenderedChat) -> Turns<'c> {
        Turns { renderer, conversation, rendered }
    }

    /// Returns the bytes of the rendered text that are learned, in order.
    pub(super) fn learned(&self, train_on: TrainOn) -> Result<Vec<Range<usize>>, ChatError> {
        let turns: Vec<_> = turns(self.conversation).collect();
        let wanted = match train_on {
            TrainOn::All => return self.all(&turns),
            TrainOn::Assistant | TrainOn::Last => wanted(self.conversation, train_on),
        };
        if self.rendered.has_generation() { self.generated(&turns, &wanted) } else { self.derived(&wanted) }
    }

    /// Returns all of the text but the turns whose weight is 0.
    fn all(&self, turns: &[usize]) -> Result<Vec<Range<usize>>, ChatError> {
        let left_out = |turn: &&usize| self.messages()[**turn].field("weight").is_some_and(|weight| !weight.is_true());
        let left_out: Vec<_> = turns.iter().filter(left_out).copied().collect();
        let left_out = if left_out.is_empty() {
            Vec::new()
        } else if self.rendered.has_generation() {
            self.generated(turns, &left_out)?
        } else {
            self.derived(&left_out)?
        };
        let starts = [0].into_iter().chain(left_out.iter().map(|span| span.end));
        let ends = left_out.iter().map(|span| span.start).chain([self.rendered.text.len()]);
        Ok(starts.zip(ends).filter(|(start, end)| start < end).map(|(start, end)| start..end).collect())
    }

    /// Returns what stands in `{% generation %}` for some of the assistant's turns.
    fn generated(&self, turns: &[usize], wanted: &[usize]) -> Result<Vec<Range<usize>>, ChatError> {
        let spans: Vec<_> = self.rendered.generated.iter().filter(|span| !span.is_empty()).cloned().collect();
        if spans.is_empty() {
            return Err(self.rendered.nothing_learned());
        }
        if wanted.len() == turns.len() {
            return Ok(spans);
        }
        let of_turn: Vec<Vec<_>> = if spans.len() == turns.len() {
            spans.into_iter().map(|span| vec![span]).collect()
        } else {
            let turns = turns.iter().map(|turn| {
                let place = self.turn(*turn)?;
                Ok(spans.iter().filter(|span| span.start < place.end && place.start < span.end).cloned().collect())
            });
            turns.collect::<Result<_, ChatError>>()?
        };
        let wanted = turns.iter().zip(of_turn).filter(|(turn, _)| wanted.contains(turn)).flat_map(|(_, spans)| spans);
        Ok(wanted.collect())
    }

    /// Returns the places of turns, which are found by rendering.
    fn derived(&self, wanted: &[usize]) -> Result<Vec<Range<usize>>, ChatError> {
        let mut spans: Vec<Range<usize>> = Vec::with_capacity(wanted.len());
        for turn in wanted {
            let span = self.turn(*turn)?;
            if span.is_empty() || spans.last().is_some_and(|last| last.end > span.start) {
                return Err(self.not_found(*turn, span.start));
            }
            spans.push(span);
        }
        Ok(spans)
    }

    fn turn(&self, turn: usize) -> Result<Range<usize>, ChatError> {
        let start = self.start(turn)?;
        let end = self.end(turn)?;
        if start <= end { Ok(start..end) } else { Err(self.not_found(turn, start)) }
    }

    /// Returns where the model starts to write a turn.
    fn start(&self, turn: usize) -> Result<usize, ChatError> {
        let text = &self.rendered.text;
        let asked = self.render(&self.messages()[..turn], true);
        if let Ok(asked) = &asked
            && text.starts_with(asked)
        {
            return Ok(asked.len());
        }
        let found = match turn.checked_sub(1) {
            Some(before) => marked(&self.messages()[before]).iter().find_map(|before| self.start_after(turn, before)),
            None => marked(&self.messages()[turn]).iter().find_map(|own| self.start_of_first(own)),
        };
        found.ok_or_else(|| self.no_start(turn, asked))
    }

    /// Finds the start of a turn after the content of the message before it.
    fn start_after(&self, turn: usize, before: &Marked) -> Option<usize> {
        let rest = self.rest(turn - 1, before)?;
        let asked = self.after(&self.with(turn - 1, before)[..turn], before, true)?;
        let start = self.rendered.text.len() - rest.len();
        if rest.starts_with(&asked) {
            return Some(start + asked.len());
        }
        // The prompt also opens the model's thinking, which this turn does not have: what comes before any answer here is the prompt.
        let mut messages = self.with(turn - 1, before);
        messages[turn] = messages[turn].answered(Value::from(ANSWER.to_string()));
        let header = self.after(&messages, before, false)?;
        let header = &header[..header.find(ANSWER)?];
        (asked.starts_with(header) && rest.starts_with(header)).then_some(start + header.len())
    }

    /// Finds the start of a turn that is the first message, which some templates do not ask for: the one prompt before its content.
    fn start_of_first(&self, own: &Marked) -> Option<usize> {
        let text = self.render(&self.with(0, own), false).ok()?;
        let (header, _) = text.split_once(CONTENT)?;
        let (asked, all) =
            (self.render(&self.messages()[..1], true).ok()?, self.render(&self.messages()[..1], false).ok()?);
        let prompt = asked.strip_prefix(&all)?;
        let (before, after) = header.split_once(prompt)?;
        let is_sure = !prompt.is_empty() && !after.contains(prompt) && self.rendered.text.starts_with(header);
        is_sure.then_some(before.len() + prompt.len())
    }

    /// Returns where a turn ends, its end-of-turn token included.
    fn end(&self, turn: usize) -> Result<usize, ChatError> {
        let text = &self.rendered.text;
        if turn + 1 == self.messages().len() {
            return Ok(text.len());
        }
        let ended = self.render(&self.messages()[..=turn], false);
        if let Ok(ended) = &ended
            && text.starts_with(ended)
        {
            return Ok(ended.len());
        }
        let found = marked(&self.messages()[turn]).iter().find_map(|own| self.end_after(turn, own));
        found.ok_or_else(|| self.not_found(turn, ended.map_or(0, |ended| common(&ended, text))))
    }

    /// Finds the end of a turn after its content.
    fn end_after(&self, turn: usize, own: &Marked) -> Option<usize> {
        let rest = self.rest(turn, own)?;
        let start = self.rendered.text.len() - rest.len();
        let messages = self.with(turn, own);
        let last = self.after(&messages[..=turn], own, false)?;
        if rest.starts_with(&last) {
            return Some(start + last.len());
        }
        // The last turn of all ends otherwise than one that others follow, as this one. Before a prompt, it ends as here; what the
        // prompt and the next message have in common is cut off where the template's part ends.
        let followed = self.after(&messages[..=turn], own, true)?;
        let mut same = common(&followed, &rest);
        if same == followed.len() {
            let (asked, all) =
                (self.render(&self.messages()[..turn], true).ok()?, self.render(&self.messages()[..turn], false).ok()?);
            same = same.checked_sub(asked.strip_prefix(&all)?.len())?;
        }
        let cut = |same: usize| self.rendered.part_before(start + same).max(start);
        Some(cut(same).max(cut(common(&last, &rest))))
    }

    /// Returns what follows the content of a message in the whole text.
    fn rest(&self, turn: usize, own: &Marked) -> Option<String> {
        let rest = self.after(&self.with(turn, own), own, false)?;
        self.rendered.text.ends_with(&rest).then_some(rest)
    }

    /// Renders messages, of which one has a mark, and returns what follows the mark.
    fn after(&self, messages: &[ChatMessage], own: &Marked, prompt: bool) -> Option<String> {
        let text = self.render(messages, prompt).ok()?;
        let (_, after) = text.split_once(CONTENT)?;
        Some(after.replace(CONTENT, &own.replaced))
    }

    fn with(&self, turn: usize, own: &Marked) -> Vec<ChatMessage> {
        let mut messages = self.messages().to_vec();
        messages[turn] = own.message.clone();
        messages
    }

    fn render(&self, messages: &[ChatMessage], prompt: bool) -> Result<String, ChatError> {
        Ok(self.renderer.render(self.conversation, messages, prompt)?.text)
    }

    fn messages(&self) -> &'c [ChatMessage] {
        &self.conversation.messages
    }

    /// Returns the error for a turn that does not begin as its prompt does.
    fn no_start(&self, turn: usize, asked: Result<String, ChatError>) -> ChatError {
        let Ok(asked) = asked else { return self.not_found(turn, 0) };
        let at = common(&asked, &self.rendered.text);
        let line = |text: &str| text[at..].chars().take(40).collect::<String>();
        let (prompt, text, place) = (line(&asked), line(&self.rendered.text), &self.messages()[turn].place);
        self.rendered.error(
            at,
            format!(
                "the prompt for `{place}` goes on with {prompt:?} where the conversation has {text:?}, so that it cannot be told \
                 where the model starts to write: {MARK_BY_HAND}, or set what the template asks, such as `enable_thinking`, in the record"
            ),
        )
    }

    fn not_found(&self, turn: usize, at: usize) -> ChatError {
        let place = &self.messages()[turn].place;
        let problem =
            format!("what it writes for `{place}` cannot be told for sure from what is around it: {MARK_BY_HAND}");
        self.rendered.error(at, problem)
    }
}

/// Returns an error if a turn that is to be learned has no content, or if there is none.
pub(super) fn check(conversation: &Conversation, train_on: TrainOn) -> Result<(), ChatError> {
    let wanted = wanted(conversation, train_on);
    if let Some(empty) = wanted.iter().map(|turn| &conversation.messages[*turn]).find(|message| message.is_empty()) {
        let place = &empty.place;
        let problem = format!("`{place}` is a turn of the assistant without content: fill it, or leave the record out");
        return Err(ChatError::Conversation(problem));
    }
    if wanted.is_empty() && train_on != TrainOn::All {
        let problem = "nothing of it is learned: the `weight` of each of these turns of the assistant is 0";
        return Err(ChatError::Conversation(problem.to_owned()));
    }
    Ok(())
}

/// Returns an error if the template has not written a system message, as those that know no system turn do without a word.
pub(super) fn check_system(conversation: &Conversation, rendered: &RenderedChat) -> Result<(), ChatError> {
    let is_written = |message: &&ChatMessage| {
        let content = message.field("content").and_then(Value::as_str).unwrap_or_default();
        // Templates strip a text, and may put something between its lines.
        rendered.text.contains(content.trim().lines().next().unwrap_or_default().trim_end())
    };
    let mut system = conversation.messages.iter().filter(|message| message.role == "system");
    let Some(lost) = system.find(|message| !is_written(message)) else { return Ok(()) };
    Err(ChatError::Conversation(format!(
        "template `{}` does not write its system message `{}`: take that out of the record, or give a template that has a system turn \
         with --template",
        rendered.template(),
        lost.place
    )))
}

/// Returns the turns of the assistant that are learned.
fn wanted(conversation: &Conversation, train_on: TrainOn) -> Vec<usize> {
    let first = if train_on == TrainOn::Last { turns(conversation).last().unwrap_or(0) } else { 0 };
    let is_learned = |turn: &usize| conversation.messages[*turn].weight != Some(false);
    turns(conversation).skip_while(|turn| *turn < first).filter(is_learned).collect()
}

fn turns(conversation: &Conversation) -> impl Iterator<Item = usize> {
    conversation.messages.iter().enumerate().filter(|(_, message)| message.is_assistant()).map(|(turn, _)| turn)
}

/// Returns a message with a mark in place of its content, and with one in place of the name of its last tool call.
fn marked(message: &ChatMessage) -> Vec<Marked> {
    let calls: Option<Vec<Value>> =
        message.field("tool_calls").and_then(|calls| Some(calls.try_iter().ok()?.collect()));
    let mut all = Vec::new();
    if message.field("content").is_some() || calls.is_none() {
        let replaced = message.field("content").and_then(Value::as_str).unwrap_or_default().to_owned();
        all.push(Marked { message: message.with("content", Value::from(CONTENT.to_string())), replaced });
    }
    if let Some(mut calls) = calls
        && let Some(last) = calls.pop()
    {
        let function = last.get_attr("function").ok().filter(|function| !function.is_undefined());
        let name = function.as_ref().unwrap_or(&last).get_attr("name").ok();
        if let Some(replaced) = name.as_ref().and_then(Value::as_str) {
            let named = |of: &Value| set(of, "name", Value::from(CONTENT.to_string()));
            calls.push(
                function.as_ref().map_or_else(|| named(&last), |function| set(&last, "function", named(function))),
            );
            all.push(Marked { message: message.with("tool_calls", calls.into()), replaced: replaced.to_owned() });
        }
    }
    all
}

/// Returns an object with another value of a field.
fn set(object: &Value, name: &str, value: Value) -> Value {
    let fields = object.try_iter().into_iter().flatten().map(|field| {
        let old = object.get_item(&field).unwrap_or_default();
        let value = if field.as_str() == Some(name) { value.clone() } else { old };
        (field, value)
    });
    Value::from_pairs(fields)
}

/// Returns the number of bytes that two texts have in common at their beginnings.
fn common(one: &str, other: &str) -> usize {
    let same = one.chars().zip(other.chars()).take_while(|(one, other)| one == other);
    same.map(|(letter, _)| letter.len_utf8()).sum()
}
