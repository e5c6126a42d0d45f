// Package cmdline holds what gq's commands share: it reads arguments, reports errors and exit
// statuses, shows progress and prints sizes and tables.
//
// Its rules for all commands:
//
//   - Results go to standard output (App.Writer), everything else to standard error. It is no error
//     if the reader of standard output stops early (head), provided the program ignores SIGPIPE.
//   - Flags work on either side of the positionals. Run sorts the arguments for urfave/cli, which
//     takes every argument after the first positional for a positional.
//   - The exit status is 0 if the command did its work, 1 if it failed, 2 if it was used wrongly,
//     and 128 plus the number of a signal that ended it (130 after Ctrl-C). An error with an
//     ExitCode method states its own status.
//   - An error is one line on standard error that starts with "gq: ". Wrong usage names the help to
//     run instead of printing it.
//
// A command is a *cli.Command whose Action returns an error; Usagef makes an error of wrong usage.
// Flags do not set cli's Required, because cli prints the whole help to standard output if a
// required flag is missing: the Action checks.
package cmdline
