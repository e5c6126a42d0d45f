// Package quantizer says how to quantize the tensors of a checkpoint.
//
// A [Recipe] has defaults and [Rule]s for tensors that differ. Each of its keys is a [Setting],
// which has a name, a default and help. A [Target] is a consumer that prescribes format, layouts
// and scales. A [LayoutRequest] is a layout that tensors are packed in. Package conversion plans
// and writes a .gqf file by a recipe. [QuantizeMatrix] quantizes a matrix in memory.
//
// Errors name the file, the tensor and the row ([TensorError]). A request that is impossible for
// any weights is a [RequestError].
package quantizer
