// Package eval compares the predictions of a quantized model with the predictions of its float model on a text.
//
// [Compare] runs both models on windows of tokens (see model/text) and gives perplexities, the KL divergence of the next
// token's distribution, and the positions at which it is largest. [Reference] keeps what the float model predicts, so that
// several quantized versions can be measured one after the other; choosing bits does that.
//
// Every figure has the same bits on any CPU and for any number of threads: sums are float64 in a fixed order, products are
// rounded before they are added, logarithms and exponentials come from internal/detmath.
package eval
