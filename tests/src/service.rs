//! A program of ours that runs as a process of its own beside a test.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, bail, ensure};

use crate::costs::ProcessCosts;
use crate::eventually;

/// How many lines of the log a failure shows.
const TAIL_LINES: usize = 40;

/// A running child process with its output in a file. Dropping it kills it, and shows the
/// end of its output when the test is failing.
#[derive(Debug)]
pub struct Service {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Service {
    /// Starts `command`, its standard output and error in `folder/NAME.log`.
    ///
    /// # Errors
    /// When the log cannot be made or the program cannot be started.
    pub fn spawn(name: &str, mut command: Command, folder: &Path) -> anyhow::Result<Self> {
        let log = folder.join(format!("{name}.log"));
        let out =
            File::create(&log).with_context(|| format!("log of {name}: {}", log.display()))?;
        let err = out.try_clone().with_context(|| format!("log of {name}"))?;
        command.stdin(Stdio::null()).stdout(out).stderr(err);
        let child = command
            .spawn()
            .with_context(|| format!("start {name}: {command:?}"))?;
        Ok(Self {
            name: name.to_owned(),
            child,
            log,
        })
    }

    /// The process id, for [`ProcessCosts::of`] and for signals.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it has cost so far.
    ///
    /// # Errors
    /// When it has ended.
    pub fn costs(&self) -> io::Result<ProcessCosts> {
        ProcessCosts::of(self.pid())
    }

    /// Everything it has written so far.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub fn output(&self) -> io::Result<String> {
        Ok(String::from_utf8_lossy(&std::fs::read(&self.log)?).into_owned())
    }

    /// Waits until a line of its output contains `needle`, and returns that line.
    ///
    /// # Panics
    /// After `bound`, or at the bound when it ended first.
    pub async fn line_with(&mut self, needle: &str, bound: Duration) -> String {
        let what = format!("{needle:?} in the output of {}", self.name);
        let (name, log, child) = (
            &self.name,
            &self.log,
            std::cell::RefCell::new(&mut self.child),
        );
        eventually(&what, bound, async || {
            let text = String::from_utf8_lossy(&std::fs::read(log)?).into_owned();
            if let Some(line) = text.lines().find(|line| line.contains(needle)) {
                return Ok(line.to_owned());
            }
            match child.borrow_mut().try_wait()? {
                Some(status) => bail!("{name} ended ({status}) after: {}", tail(&text)),
                None => bail!("{name} runs, its output ends with: {}", tail(&text)),
            }
        })
        .await
    }

    /// Asks it to end (SIGTERM) and waits for that.
    ///
    /// # Errors
    /// When the signal cannot be sent.
    ///
    /// # Panics
    /// When it is still running after `bound`.
    pub async fn terminate(&mut self, bound: Duration) -> anyhow::Result<ExitStatus> {
        // kill(1) rather than a binding to kill(2): one signal is not worth unsafe code.
        let sent = Command::new("kill")
            .arg("-TERM")
            .arg(self.pid().to_string())
            .status()?;
        ensure!(sent.success(), "send SIGTERM to {}: {sent}", self.name);
        let what = format!("the end of {} after SIGTERM", self.name);
        let (log, child) = (&self.log, std::cell::RefCell::new(&mut self.child));
        Ok(eventually(&what, bound, async || {
            match child.borrow_mut().try_wait()? {
                Some(status) => Ok(status),
                None => bail!(
                    "it runs; {}",
                    tail(&String::from_utf8_lossy(&std::fs::read(log)?))
                ),
            }
        })
        .await)
    }

    /// Ends it at once (SIGKILL), as a crash would.
    ///
    /// # Errors
    /// When it cannot be waited for.
    pub fn kill(&mut self) -> io::Result<ExitStatus> {
        // An error means that it has ended already.
        let _ = self.child.kill();
        self.child.wait()
    }

    /// Whether it has not ended yet.
    ///
    /// # Errors
    /// When the system does not say.
    pub fn is_running(&mut self) -> io::Result<bool> {
        Ok(self.child.try_wait()?.is_none())
    }
}

impl Drop for Service {
    #[expect(
        clippy::print_stderr,
        reason = "a failing test shows what its processes said"
    )]
    fn drop(&mut self) {
        let _ = self.kill();
        if std::thread::panicking() {
            let text = self.output().unwrap_or_else(|error| error.to_string());
            eprintln!("--- {}: end of its output ---\n{}", self.name, tail(&text));
        }
    }
}

/// The last lines of a text.
fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUND: Duration = Duration::from_secs(20);

    fn shell(name: &str, script: &str) -> (Service, tempfile::TempDir) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        (
            Service::spawn(name, command, folder.path()).expect("sh starts"),
            folder,
        )
    }

    #[tokio::test]
    async fn a_line_of_either_stream_is_found_and_the_process_can_be_ended() {
        let (mut service, _folder) =
            shell("talker", "echo one; echo two ready >&2; exec sleep 600");
        assert_eq!(service.line_with("ready", BOUND).await, "two ready");
        assert!(service.costs().expect("it runs").memory_bytes_peak > 0);
        let status = service.terminate(BOUND).await.expect("a signal");
        assert!(!status.success());
        assert!(!service.is_running().expect("known"));
    }

    #[tokio::test]
    async fn dropping_it_kills_it() {
        let (mut service, _folder) = shell("sleeper", "echo up; exec sleep 600");
        service.line_with("up", BOUND).await;
        let pid = service.pid();
        drop(service);
        assert!(ProcessCosts::of(pid).is_err());
    }

    #[test]
    fn the_tail_keeps_the_last_lines() {
        let text: String = (0..100).map(|n| format!("{n}\n")).collect();
        let tail = tail(&text);
        assert!(tail.starts_with("60\n") && tail.ends_with("\n99"), "{tail}");
    }
}
