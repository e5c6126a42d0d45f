// Package choice reads multiple-choice questions and turns them into token sequences, by the rules
// of EleutherAI's lm-evaluation-harness.
//
// [Read] reads a file of JSON lines: questions of gq's own form, or of HellaSwag, ARC and MMLU as
// Hugging Face's datasets library exports them. An [Encoder] encodes prompts and endings. Package
// model/eval scores them.
package choice
