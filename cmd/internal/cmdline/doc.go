// Package cmdline is what gq's commands share: how arguments are read, errors and
// exit statuses reported, progress shown and sizes printed.
//
// The rules it keeps for all commands:
//
//   - Results go to standard output (App.Writer), everything else to standard error.
//     A reader of standard output that stops before the end (head) is no error, if the
//     program ignores SIGPIPE.
//   - Flags work on either side of the positionals: Run sorts the arguments before
//     urfave/cli sees them, which would stop reading flags at the first positional
//     and take what follows for positionals, without a word.
//   - The exit status is 0 if the command did its work, 1 if it failed, 2 if it was
//     used wrongly, 128 and the number of the signal if one ended it (130 after Ctrl-C); an error
//     with an ExitCode method says its own.
//   - An error is one line on standard error that starts with "gq: ". Wrong usage
//     names the help to run instead of printing it.
//
// A command is a *cli.Command whose Action returns an error; Usagef makes one that
// means wrong usage. Flags with cli's Required set are not to be used (cli prints
// the whole help to standard output when one is missing): the Action checks.
package cmdline
