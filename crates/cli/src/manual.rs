//! Man pages and shell completions, from the definition of the command line.
//! Packages are built with them.

use crate::args::{CommandLine, ManualArgs};
use crate::failure::{Failure, Result};
use crate::mount_helper::{MountHelperArgs, UmountHelperArgs};
use braid_contract::Shown;
use clap::{Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;
use std::fs;
use std::io;
use std::path::Path;

pub(crate) fn write(args: &ManualArgs) -> Result<()> {
    write_all(&args.directory).map_err(|error| Failure::new(format!("{}: {error}", args.directory.shown())))
}

fn write_all(directory: &Path) -> io::Result<()> {
    let [man1, man8, completions] = ["man1", "man8", "completions"].map(|name| directory.join(name));
    for made in [&man1, &man8, &completions] {
        fs::create_dir_all(made)?;
    }
    let mut command = CommandLine::command().disable_help_subcommand(true);
    for shell in [Shell::Bash, Shell::Fish, Shell::Zsh] {
        clap_complete::generate_to(shell, &mut command.clone(), "braid", &completions)?;
    }
    command.build();
    write_pages(&command, &man1)?;
    for helper in [MountHelperArgs::command(), UmountHelperArgs::command()] {
        write_page(&helper, "8", &man8)?;
    }
    Ok(())
}

/// Writes the page of a command, and those of its sub-commands.
fn write_pages(command: &Command, directory: &Path) -> io::Result<()> {
    write_page(command, "1", directory)?;
    let below = command.get_subcommands().filter(|below| !below.is_hide_set());
    below.into_iter().try_for_each(|below| write_pages(below, directory))
}

fn write_page(command: &Command, section: &str, directory: &Path) -> io::Result<()> {
    let name = command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned();
    // Tables and examples keep their layout.
    let extra = command.get_after_help().map(|text| format!("{text}"));
    let has_below = command.has_subcommands();
    let mut page = Vec::new();
    let command = command.clone().after_help(None::<&str>);
    let man = Man::new(command).title(name.to_uppercase()).section(section).manual("Braid");
    man.render_title(&mut page)?;
    // Justification would leave gaps around long words, such as paths.
    page.extend(b".ad l\n");
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if has_below {
        man.render_subcommands_section(&mut page)?;
    }
    if let Some(extra) = extra {
        page.extend(as_written(&extra).bytes());
    }
    page.extend(b".SH SEE ALSO\n\\fBbraid\\fR(1), \\fBbraid.yaml\\fR(5), \\fBmount.fuse.braid\\fR(8), /usr/share/doc/braid\n");
    fs::write(directory.join(format!("{name}.{section}")), page)
}

/// A text for a man page, with its own lines.
fn as_written(text: &str) -> String {
    let line = |line: &str| {
        let line = line.replace('\\', "\\e").replace('-', "\\-");
        // A line with this beginning would be a request.
        if line.starts_with(['.', '\'']) { format!("\\&{line}\n") } else { line + "\n" }
    };
    format!(".SH NOTES\n.nf\n{}.fi\n", text.lines().map(line).collect::<String>())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_page_and_every_shell_its_completions() {
        let dir = tempfile::tempdir().unwrap();
        write_all(dir.path()).unwrap();
        for page in ["man1/braid.1", "man1/braid-mount.1", "man1/braid-tier-add.1", "man8/mount.fuse.braid.8"]
        {
            let text = fs::read_to_string(dir.path().join(page)).unwrap();
            assert!(text.contains(".SH OPTIONS") && text.contains(".SH SEE ALSO"), "{page}: {text}");
        }
        let mount = fs::read_to_string(dir.path().join("man1/braid-mount.1")).unwrap();
        assert!(mount.contains("\n  braid mount two\\-tier.yaml /mnt/volume\n"), "{mount}");
        assert!(!dir.path().join("man1/braid-manual.1").exists());
        for completions in ["braid.bash", "braid.fish", "_braid"] {
            let text = fs::read_to_string(dir.path().join("completions").join(completions)).unwrap();
            assert!(text.contains("evacuate") && text.contains("dry-run"), "{completions}");
        }
    }
}
