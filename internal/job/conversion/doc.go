// Package conversion lays out the jobs that make one model file of another: it joins an input and
// an output to a plan, and the plan writes the output.
//
//	p, err := conversion.NewPlan(ck, config, conversion.Options{Recipe: recipe})
//	report, err := p.Write(ctx, "model.gqf")
//
// Inputs are the packages from..., outputs the packages to... beside this one. A plan (package
// plan) is made from headers, and fixes the place of every byte. Package write then reads rows, and
// puts them to their places. Package divide lets several workers write one file.
package conversion
