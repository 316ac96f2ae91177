//! Refuses conditions with unknown names or wrong types. The language detects
//! these only when it evaluates an expression, and not if another part decides
//! first; this check detects them before anything is mounted.

use super::error::ConditionError;
use super::facts::{VARIABLES, variable_names};
use super::types::Type;
use super::units;
use braid_hint::Glob;
use cel::IdedExpr;
use cel::common::ast::{CallExpr, Expr, ListExpr, LiteralValue};
use std::collections::BTreeMap;

type Checked<T> = Result<T, ConditionError>;

const FUNCTIONS: &str =
    "the functions are matches, startsWith, endsWith and contains of a text, and size(text)";

/// The patterns of a condition, by their text.
pub(super) type Globs = BTreeMap<String, Glob>;

/// The function that matches a text against a pattern.
pub(super) const MATCHES: &str = "matches";

/// Refuses an expression that is not a condition; answers its patterns.
pub(super) fn check(expr: &Expr) -> Checked<Globs> {
    let mut check = Check::default();
    match check.type_of(expr)? {
        Type::Truth => Ok(check.globs),
        other => Err(ConditionError::new(
            format!("the condition is {}, not true or false", other.name()),
            "compare it with something, as in: size < 64KiB",
        )),
    }
}

/// A check under way, and the patterns that it found.
#[derive(Default)]
struct Check {
    globs: Globs,
}

impl Check {
    fn type_of(&mut self, expr: &Expr) -> Checked<Type> {
        match expr {
            Expr::Literal(literal) => literal_type(literal),
            Expr::Ident(name) => variable(name),
            Expr::Call(call) => self.call_type(call),
            Expr::Select(select) => Err(ConditionError::new(
                format!("there is no field '{}'", select.field),
                format!("what a condition knows is {}", variable_names()),
            )),
            _ => Err(ConditionError::new(
                "lists, maps and structures stand not in a condition but after 'in'",
                "write it as in: uid in [1000, 1001]",
            )),
        }
    }

    fn call_type(&mut self, call: &CallExpr) -> Checked<Type> {
        if let Some(target) = &call.target {
            return self.member_type(call, target);
        }
        let name = call.func_name.as_str();
        match (name, &call.args[..]) {
            ("_&&_" | "_||_", [a, b]) => self.joined(sign(name), &[a, b]),
            ("!_", [a]) => self.joined("!", &[a]),
            ("_==_" | "_!=_" | "_<_" | "_<=_" | "_>_" | "_>=_", [a, b]) => self.compared(sign(name), a, b),
            ("_+_" | "_-_" | "_*_" | "_/_" | "_%_", [a, b]) => self.reckoned(sign(name), a, b),
            ("-_", [a]) => self.number("-", a),
            ("@in", [a, list]) => self.among(a, list),
            ("_?_:_", [condition, a, b]) => self.chosen(condition, a, b),
            ("size", [a]) => match self.type_of(&a.expr)? {
                Type::Text => Ok(Type::Number),
                other => Err(ConditionError::new(
                    format!("size() of {}", other.name()),
                    "size(text) is the length of a text; the size of the file is the variable size",
                )),
            },
            (units::NANOSECONDS, [_]) => Ok(Type::Duration),
            _ => Err(ConditionError::new(
                format!("there is no function or operator '{}'", sign(name)),
                FUNCTIONS,
            )),
        }
    }

    fn joined(&mut self, sign: &str, parts: &[&IdedExpr]) -> Checked<Type> {
        for part in parts {
            let found = self.type_of(&part.expr)?;
            if found != Type::Truth {
                let what = format!("'{sign}' joins {}, and joins only what is true or false", found.name());
                return Err(ConditionError::new(what, "compare it with something, as in: size < 64KiB"));
            }
        }
        Ok(Type::Truth)
    }

    fn compared(&mut self, sign: &str, a: &IdedExpr, b: &IdedExpr) -> Checked<Type> {
        let (a, b) = (self.type_of(&a.expr)?, self.type_of(&b.expr)?);
        if a == b {
            return Ok(Type::Truth);
        }
        let advice = match (a, b) {
            (Type::Duration, _) | (_, Type::Duration) => "write a duration as in: age > 1h",
            _ => "write numbers without quotes, and texts with them",
        };
        Err(ConditionError::new(format!("'{sign}' compares {} with {}", a.name(), b.name()), advice))
    }

    fn reckoned(&mut self, sign: &str, a: &IdedExpr, b: &IdedExpr) -> Checked<Type> {
        self.number(sign, a)?;
        self.number(sign, b)
    }

    fn number(&mut self, sign: &str, part: &IdedExpr) -> Checked<Type> {
        match self.type_of(&part.expr)? {
            Type::Number => Ok(Type::Number),
            other => Err(ConditionError::new(
                format!("'{sign}' reckons with {}", other.name()),
                "it takes numbers only",
            )),
        }
    }

    fn among(&mut self, part: &IdedExpr, list: &IdedExpr) -> Checked<Type> {
        let wanted = self.type_of(&part.expr)?;
        let Expr::List(ListExpr { elements, .. }) = &list.expr else {
            return Err(ConditionError::new(
                "'in' looks into what is no list",
                "write it as in: uid in [1000, 1001]",
            ));
        };
        for element in elements {
            let found = self.type_of(&element.expr)?;
            if found != wanted {
                let what = format!("'in' looks for {} among {}", wanted.name(), found.plural());
                return Err(ConditionError::new(what, "list what it may be"));
            }
        }
        Ok(Type::Truth)
    }

    fn chosen(&mut self, condition: &IdedExpr, a: &IdedExpr, b: &IdedExpr) -> Checked<Type> {
        self.joined("?", &[condition])?;
        let (a, b) = (self.type_of(&a.expr)?, self.type_of(&b.expr)?);
        if a == b {
            return Ok(a);
        }
        let what = format!("'?' chooses between {} and {}, of different kinds", a.name(), b.name());
        Err(ConditionError::new(what, "let both be of one kind"))
    }

    fn member_type(&mut self, call: &CallExpr, target: &IdedExpr) -> Checked<Type> {
        let name = call.func_name.as_str();
        if ![MATCHES, "startsWith", "endsWith", "contains"].contains(&name) {
            return Err(ConditionError::new(format!("there is no function '{name}'"), FUNCTIONS));
        }
        let target = self.type_of(&target.expr)?;
        let [argument] = &call.args[..] else {
            return Err(ConditionError::new(format!("'{name}' takes one text"), FUNCTIONS));
        };
        let found = self.type_of(&argument.expr)?;
        if let Some(wrong) = [target, found].into_iter().find(|found| *found != Type::Text) {
            let what = format!("'{name}' is given {}", wrong.name());
            return Err(ConditionError::new(what, "it is for texts, as in: path.matches(\"*.wal\")"));
        }
        if name == MATCHES {
            let Expr::Literal(LiteralValue::String(pattern)) = &argument.expr else {
                let advice = "write it as in: path.matches(\"*.wal\")";
                return Err(ConditionError::new("'matches' needs a pattern in quotes", advice));
            };
            let glob = Glob::new(pattern.inner()).map_err(|what| {
                let found = format!("'{}' is not a pattern: {what}", pattern.inner());
                ConditionError::new(found, "a pattern has *, **, ? and [a-z]; it is no regular expression")
            })?;
            self.globs.insert(pattern.inner().to_owned(), glob);
        }
        Ok(Type::Truth)
    }
}

fn literal_type(literal: &LiteralValue) -> Checked<Type> {
    match literal {
        LiteralValue::Boolean(_) => Ok(Type::Truth),
        LiteralValue::Int(_) => Ok(Type::Number),
        LiteralValue::String(_) => Ok(Type::Text),
        _ => Err(ConditionError::new(
            "found a value that is neither true, false, a whole number nor a text",
            "write whole numbers, with a unit if need be, and texts in quotes",
        )),
    }
}

fn variable(name: &str) -> Checked<Type> {
    if let Some((_, found)) = VARIABLES.iter().find(|(known, _)| *known == name) {
        return Ok(*found);
    }
    let alike = |known: &str| known.starts_with(name) || name.starts_with(known);
    let advice = match VARIABLES.iter().find(|(known, _)| alike(known)) {
        Some((known, _)) => format!("did you mean '{known}'? The variables are {}", variable_names()),
        None => format!("the variables are {}", variable_names()),
    };
    Err(ConditionError::new(format!("there is no variable '{name}'"), advice))
}

/// An operator as it is written.
fn sign(name: &str) -> &str {
    name.trim_matches('_')
}
