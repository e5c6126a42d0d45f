// Package choice reads multiple-choice questions and turns these into token sequences, by the rules
// of EleutherAI's lm-evaluation-harness.
//
// [Read] reads JSON lines: questions of gq's own form, or of HellaSwag, ARC and MMLU as exported by
// Hugging Face's datasets library. An [Encoder] encodes prompts and endings. Package
// internal/lm/eval scores the endings.
package choice
