package tune

import "github.com/lowbit-go/gq/internal/detmath"

// klGradient replaces the student's logits of a position by the gradient of share times
// KL(teacher || student): share (softmax(student) - softmax(teacher)). It leaves the teacher's
// logits.
func klGradient(student, teacher []float32, share float64, p, q []float64) {
	softmax(p, teacher)
	softmax(q, student)
	for i := range student {
		student[i] = float32(float64(share * (q[i] - p[i])))
	}
}

// softmax sets dst to the probabilities of logits.
func softmax(dst []float64, logits []float32) {
	top := logits[0]
	for _, v := range logits {
		top = max(top, v)
	}
	sum := 0.0
	for i, v := range logits {
		e := detmath.ExpNarrow(float64(v) - float64(top))
		dst[i] = e
		sum += e
	}
	for i := range dst {
		dst[i] /= sum
	}
}
