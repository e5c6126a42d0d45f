// Package quantizer says what becomes of the tensors of a checkpoint.
//
// A [Recipe] has the defaults and the [Rule]s for tensors that differ, a [Target] is a consumer that
// prescribes layouts and scales, and a [Format] is a layout that tensors are packed in. Package
// conversion plans and writes a .gqf file by a recipe.
//
// Errors name the file, the tensor and the row ([TensorError]); a request that cannot be met whatever
// the weights are is a [RequestError].
package quantizer
