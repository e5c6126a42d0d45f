// Package tune trains the numbers of a quantized model against its checkpoint, after calibration
// has chosen the codes and before a file is written.
//
//	t, err := tune.NewText(text) // written by the model
//	r, err := tune.Run(ctx, plan, codes, t, tune.Options{Kind: quantizer.TuneFloats})
//	codes.Tuned = r.Tuned() // if better as executed: the caller's guard
//	plan.WriteWith(ctx, path, write.Options{Codes: codes})
//
// Apart from codes, a file holds floats: a scale for each group, the gains of norms, a scale for
// each group of the embedding. The student, the model in the file, is trained by distillation: the
// loss is the mean KL divergence of its predictions from the checkpoint's, the teacher's, over the
// whole vocabulary, computed with dequantized weights and activations in float32. Only stored
// numbers change, so all layouts and formats take the result, and readers need no change.
//
// # Parameters
//
// A stored scale is s = dtype(s0 (1 + d)) and a gain g = dtype(g0 (1 + n)), with d = n = 0 at
// first; gradients pass the rounding unchanged. With quantizer.TuneNorms all scales of a row share
// d, with TuneFloats each scale has its own. Gains are written in the checkpoint's dtype. A value
// that the layouts cannot hold stays at s0. Super-blocks of K types train d and dmin; their
// integers stay. Q4_1 and Q5_1 train minima like scales. The matrix of a tied embedding has a
// single set of parameters, and the gradients from both uses add up.
//
// With TuneCodes a code is q = round(u), within the range of codes, and gradients pass the rounding
// unchanged. u begins at q0 + clamp(w/s0 + z - q0, -.35, .35), with the checkpoint's weight w: a
// code near the border between two moves first. Where KL was small already, .49 with larger rates
// made the KL larger. Codes of the embedding, and of groups of zeros, stay. Weights that were on a
// lattice before (rounding.RowQuantizer.Recover) move as others do.
//
// # Training
//
// Steps of at most 512 tokens; Adam (.9, .99, 1e-12); ten steps of warm-up, then a cosine to a
// twentieth. The rates are 4e-3, 6e-3 up to 2.5 bits, and 1e-2 for u. An eighth of the text is held
// out. The divergence there is measured before and during training, and the step with the least
// divergence is the result. If a divergence is 2 % larger than where the rates began, the job
// returns to the best step, and divides the rates by 4. Experts are the teacher's choice. Above 2.5
// bits, 480 steps on 196,608 tokens gave books1.3M at 4.44 bits per weight a KL of .0183, 320 steps
// on 131,072 tokens .0192.
//
// All sums have a fixed order: the result depends neither on the CPU nor on the number of threads.
// A working directory stores the state every 20 seconds, less often if that takes seconds, and when
// the context is cancelled. A later job with the same key continues.
//
// # Layer by layer
//
// With TuneBlocks, and before the whole model with TuneCodes, layers are trained in turn: a decoder
// layer reads the hidden states of the quantized model, and the loss is the squared error of its
// output against the float model's hidden states behind the layer, divided by the mean square of
// each token's states. So a layer also makes up for errors of earlier layers, as gptq-ft does.
// Without the division, the large states of the first tokens are nearly the whole loss: the third
// layer of SmolLM2-135M gained nothing. Only a single layer has gradients and moments, where all
// codes together need StateBytes for each weight of the model.
//
// Memory is bounded by a layer, whatever the number of layers and the length of the text: codes of
// other layers stay in the working directory, and the hidden states of both models pass from layer
// to layer through a temporary file. An interrupted job recomputes the hidden states from the codes
// of finished layers. Without a working directory, both are in memory.
//
// A code is relaxed to the mean of its choices, weighted by the softmax of logits over a
// temperature. Choices are all codes up to 2 bits, else q0 and its neighbors. The logit of choice c
// begins at -(c - u)^2 / (2 .35^2), with u = q0 + clamp(w/s0 + z - q0, -.2, .2). The temperature
// falls from .5 to .05 in the first 85 % of BlockSteps. The rates are .05 for logits, and for
// scales 2e-3 up to 2 bits, else 1e-3. In stories260K at 4 bits, 480 steps with .05 take the KL
// from .0418 to .0263, 240 steps with .1 to .0262, 120 steps with .2 to .0305. At 2 bits, 480 steps
// end at .439 and 240 steps at .508. The likeliest choices are
// measured on held-out text four times, and the best codes and scales stay. Straight-through codes
// gave stories260K a KL of .628 at 2 bits and .129 at 3 bits, relaxed codes .538 and .095.
//
// A layer, or the whole model, stays as it was if the error or the divergence on held-out text is
// no smaller. Then all scales and gains are trained as with TuneFloats, or codes too. TuneBlocks
// ends without this step if codes, scales and optimizer would take more than mostState. At 2 bits
// on stories260K, KL fell to .405, and without layers to .449. The working directory stores
// finished layers.
//
// # Text
//
// For small models, text that the model writes serves as well as real text of its domain and is
// better elsewhere: a model tuned on books lost on WikiText. The text must not be that of
// calibration, where GPTQ has made errors small already: training there gained half, and its loss
// misled early stopping. The errors of SmolLM2-135M's first layer fell to .85 of GPTQ's on the
// 8,192 tokens that GPTQ saw, and to .68 on 32,768 other tokens. Its layers, trained at 4 bits on
// 32,768 tokens that the model wrote, have .81 of the KL before training on such text, and 1.01 ±
// .04 on novels and WikiText: no gain. Real text gains little: a model of its first four layers at
// 3 bits, after gptq-ft, trained in 126 steps at four times the rate, has on 1,180 tokens of novels
// and WikiText .963 of the KL with the 8,192 tokens of calibration (stories and WikiText), .953
// with 8,192 others, and no gain with as many by the model. Text by the model that continues pieces
// of real text is no better for gptq-ft: 1.015 ± .013 of the KL.
package tune
