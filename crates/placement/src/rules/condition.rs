//! Conditions: expressions of the Common Expression Language over the facts of
//! a write.

use super::check::{self, Globs};
use super::error::ConditionError;
use super::facts::Subject;
use super::units;
use cel::common::types::{CelBool, CelString};
use cel::common::value::CowVal;
use cel::{Context, Env, ExecutionError, FunctionContext, Program, Value};
use std::fmt;
use std::sync::Arc;

/// A valid condition: its variables exist, and its types fit.
#[derive(Clone)]
pub struct Condition {
    text: Arc<str>,
    program: Arc<Program>,
    environment: Arc<Env>,
    /// The patterns in it, by their text.
    globs: Arc<Globs>,
}

/// Longest text of a condition.
const BYTES_MAX: usize = 4096;

impl Condition {
    /// Parses a condition.
    ///
    /// # Errors
    /// If it is no expression, uses an unknown name, or its types do not fit.
    pub fn parse(text: &str) -> Result<Self, ConditionError> {
        if text.len() > BYTES_MAX {
            let found = format!("a condition of {} bytes; at most {BYTES_MAX} are read", text.len());
            return Err(ConditionError::new(found, "make several rules of it"));
        }
        let plain = units::replace(text)?;
        let environment = environment()?;
        let program = environment.compile(&plain).map_err(|errors| {
            let first = errors.errors.first().map_or_else(String::new, |error| error.msg.clone());
            ConditionError::new(
                format!("not an expression: {first}"),
                "write it as in: path.matches(\"*.wal\") || sync && size < 64KiB",
            )
        })?;
        let globs = check::check(&program.expression().expr)?;
        Ok(Self {
            text: text.into(),
            program: program.into(),
            environment: environment.into(),
            globs: globs.into(),
        })
    }

    /// As it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether it holds. One that can't be evaluated, such as for a division by
    /// zero, does not.
    pub fn holds(&self, subject: &Subject<'_>) -> bool {
        match self.reckon(subject) {
            Ok(Value::Bool(holds)) => holds,
            Ok(_) => false,
            Err(error) => {
                tracing::debug!(condition = %self.text, %error, "a condition can't be reckoned");
                false
            }
        }
    }

    fn reckon(&self, subject: &Subject<'_>) -> Result<Value, ExecutionError> {
        let mut context = Context::with_env(Arc::clone(&self.environment));
        context.set_variable_resolver(subject);
        if !self.globs.is_empty() {
            let added = context.add_function(check::MATCHES, matching(&self.globs));
            added.map_err(|error| ExecutionError::function_error(check::MATCHES, error))?;
        }
        self.program.execute(&context)
    }
}

impl fmt::Debug for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Condition({:?})", self.text)
    }
}

impl PartialEq for Condition {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

/// A function of a condition.
type Function = Box<
    dyn for<'call, 'value> Fn(
            &mut FunctionContext<'call, 'value>,
        ) -> Result<CowVal<'call, 'value>, ExecutionError>
        + Send
        + Sync,
>;

/// `matches`, which looks for its pattern among those of the condition.
fn matching(globs: &Arc<Globs>) -> Function {
    let globs = Arc::clone(globs);
    Box::new(move |call| {
        let this = call.this.as_ref().and_then(|value| value.downcast_ref::<CelString<'_>>());
        let pattern = call.args.first().and_then(|value| value.downcast_ref::<CelString<'_>>());
        let (Some(text), Some(pattern)) = (this, pattern) else {
            return Err(ExecutionError::MissingArgumentOrTarget);
        };
        let matches = globs.get(pattern.inner()).is_some_and(|glob| glob.matches(text.inner()));
        Ok(CowVal::owned(CelBool::from(matches)))
    })
}

/// The language's own functions, and durations.
fn environment() -> Result<Env, ConditionError> {
    let mut environment = Env::default().with_stdlib();
    let int = cel::common::types::INT_TYPE;
    let declared = environment.add_overload(units::NANOSECONDS, "nanoseconds", vec![int], |mut arguments| {
        arguments.pop().ok_or(ExecutionError::MissingArgumentOrTarget)
    });
    match declared {
        Ok(()) => Ok(environment),
        Err(error) => Err(ConditionError::new(error.to_string(), "this is a fault of Braid: report it")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::facts::Facts;
    use super::super::sample::Sample;
    use super::*;
    use crate::context::{Origin, WriteSpan};
    use braid_hint::{HintConfig, Hints, Writer};

    fn holds(text: &str) -> bool {
        let origin = Origin { uid: 7, gid: 8, thread: 9, sync: true, direct: false, ..Origin::default() };
        let span = WriteSpan { offset: 4096, len: 512, size: 4096, size_after: 4608, new_bytes: 0 };
        let facts = Sample("db/data/000123.wal");
        let look_up = || facts.task(9);
        Condition::parse(text).unwrap_or_else(|error| panic!("{text}: {error}")).holds(&Subject {
            facts: &facts,
            origin,
            span,
            hints: &Hints::new(["wal"], &HintConfig::default()),
            generation: 0,
            writer: &Writer::new(&look_up),
        })
    }

    #[test]
    fn conditions_hold_or_not() {
        for text in [
            "true",
            "path.matches(\"*.wal\") || sync && size < 64KiB",
            "path.matches('db/**') && !path.matches('db/*')",
            "path == \"db/data/000123.wal\" && path.startsWith(\"db\") && size(path) == 18",
            "size == 4608 && length == 512 && offset == 4KiB && append",
            "sync && !direct && uid == 7 && gid in [1, 8] && thread == 9 && owner == 1000",
            "age > 4m && age <= 300s && age < 1h",
            "stream == '' && program == 'postgres' && thread_name == 'worker 9'",
            "size > 1KB * 4 ? sync : direct",
        ] {
            assert!(holds(text), "{text}");
        }
        for text in ["size > 4608", "path.matches(\"*.log\")", "1 / (size - 4608) == 1", "direct"] {
            assert!(!holds(text), "{text}");
        }
    }

    fn refused(text: &str) -> String {
        Condition::parse(text).map_or_else(|error| error.to_string(), |_| panic!("{text} was accepted"))
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for (text, found) in [
            ("", "not an expression"),
            ("size <", "not an expression"),
            ("sizes < 5", "there is no variable 'sizes'; did you mean"),
            ("size", "the condition is a number"),
            ("size < \"64KiB\"", "'<' compares a number with a text"),
            ("sync && size", "'&&' joins a number"),
            ("true || size < \"x\"", "'<' compares"),
            ("path.size < 5", "there is no field 'size'"),
            ("path.match(\"*\")", "there is no function 'match'"),
            ("path.matches(path)", "needs a pattern in quotes"),
            ("path.matches(\"[a\")", "not a pattern"),
            ("size < 64K", "found '64K'"),
            ("size < 5s", "compares a number with a duration"),
            ("age < 5", "compares a duration with a number"),
            ("[1,2].exists(x, x > 1)", "there is no"),
            ("{'a': 1}.a == 1", "there is no field 'a'"),
            ("{'a': 1} == 1", "not in a condition"),
            ("uid in ['a']", "'in' looks for a number among texts"),
            ("sync ? 1 : 'a'", "of different kinds"),
        ] {
            let message = refused(text);
            assert!(message.contains(found), "{text}: {message}");
        }
    }
}
