//! The line that repeats a failure.

use super::op::ParseError;
use super::workload::{Workload, field};
use std::fmt;
use std::str::FromStr;

/// The state after a crash.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Left {
    /// The process died.
    Process,
    /// The power went, and of each thing that it left open this came true.
    Power(Vec<usize>),
}

/// One crash: its moment among the recorded ones, and the resulting state.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Crash {
    /// Number of the moment.
    pub cut: usize,
    /// The resulting state.
    pub left: Left,
}

/// A workload and the crashes that it failed after.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Replay {
    /// The workload.
    pub workload: Workload,
    /// The crash; `None` if it failed without one.
    pub crash: Option<Crash>,
    /// The crash of the recovery from that, if there was one.
    pub second: Option<Crash>,
}

impl fmt::Display for Left {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Power(answers) = self else { return f.write_str("process") };
        f.write_str("power")?;
        for run in answers.chunk_by(|a, b| a == b) {
            match run.len() {
                1 => write!(f, ".{}", run[0])?,
                len => write!(f, ".{}x{len}", run[0])?,
            }
        }
        Ok(())
    }
}

impl FromStr for Left {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        if text == "process" {
            return Ok(Self::Process);
        }
        let wrong = || ParseError(text.into());
        let mut parts = text.split('.');
        if parts.next() != Some("power") {
            return Err(wrong());
        }
        let mut answers = Vec::new();
        for part in parts {
            let (value, len) = part.split_once('x').unwrap_or((part, "1"));
            let (value, len) = (value.parse().map_err(|_| wrong())?, len.parse().map_err(|_| wrong())?);
            answers.extend(std::iter::repeat_n::<usize>(value, len));
        }
        Ok(Self::Power(answers))
    }
}

impl fmt::Display for Replay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.workload)?;
        if let Some(crash) = &self.crash {
            write!(f, ",cut={},left={}", crash.cut, crash.left)?;
        }
        if let Some(crash) = &self.second {
            write!(f, ",cut2={},left2={}", crash.cut, crash.left)?;
        }
        Ok(())
    }
}

impl FromStr for Replay {
    type Err = ParseError;

    fn from_str(line: &str) -> Result<Self, ParseError> {
        let crash = |cut, left| -> Result<Option<Crash>, ParseError> {
            let Ok(number) = field(line, cut) else { return Ok(None) };
            let cut = number.parse().map_err(|_| ParseError(number.into()))?;
            Ok(Some(Crash { cut, left: field(line, left)?.parse()? }))
        };
        Ok(Self { workload: line.parse()?, crash: crash("cut", "left")?, second: crash("cut2", "left2")? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replay_is_read_back_from_its_line() {
        let line = "policy=weighted,disks=3,small=1,tight=0,model=jt,start=spread,ops=append:a:4096+fsync:a,\
                    cut=12,left=power.0.1x3.2,cut2=4,left2=process";
        let replay: Replay = line.parse().unwrap();
        assert_eq!(replay.crash, Some(Crash { cut: 12, left: Left::Power(vec![0, 1, 1, 1, 2]) }));
        assert_eq!(replay.second, Some(Crash { cut: 4, left: Left::Process }));
        assert_eq!(replay.to_string(), line);
    }

    #[test]
    fn nothing_pending_is_told_from_a_process_crash() {
        let nothing = Left::Power(Vec::new());
        assert_eq!(nothing.to_string().parse(), Ok(nothing));
        assert!("power.x".parse::<Left>().is_err() && "powers".parse::<Left>().is_err());
    }
}
