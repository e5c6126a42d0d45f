package gq

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/lowbit-go/gq/accuracy"
	"github.com/lowbit-go/gq/quantizer/conversion"
)

// quantize chooses codes and writes the file.
func (j *quantizeJob) quantize() (*QuantizeReport, error) {
	r := &QuantizeReport{Allocation: j.chosen, NotRunnable: j.notRunnable()}
	if j.folding != nil {
		r.FoldChoice = j.folding.choice
	}
	closeOlder, err := j.openOlder()
	if err != nil {
		return nil, err
	}
	defer closeOlder()
	var write conversion.WriteOptions
	done, err := j.chooseCodes(&write, r)
	if err != nil {
		return nil, err
	}
	defer done()
	if write.Reuse, err = j.reuse(); err != nil {
		return nil, err
	}
	add, end := j.begin(stageQuantize, "bytes", j.plan.WorkBytes())
	j.written.Store(&add)
	defer end()
	if j.checked() { // a shard or a checkpoint is written a second time for it
		write.Check = func(temp string, written *conversion.Report) error {
			end()
			r.Report = written
			return j.measure(temp, r)
		}
	}
	final, err := j.to.write(j.ctx, j.plan, write, j.stages, end)
	if final != nil {
		if r.Report != nil {
			final.Warnings = r.Warnings // of the plan and of measuring
		}
		r.Report, r.Written = final, true
	}
	if r.Report != nil {
		r.Warnings = append(r.Warnings, j.warnings...)
		r.WriteSeconds, r.Seconds = r.Seconds, time.Since(j.start).Seconds()
		if r.BytesPerSecond = 0; j.onlyWrites() {
			r.BytesPerSecond = float64(r.SourceBytes) / r.Seconds
		}
	}
	if unmet, ok := errors.AsType[*GateNotMetError](cmp.Or(err, j.unmet)); ok {
		return r, unmet
	}
	if err != nil {
		return nil, err
	}
	return r, nil
}

// chooseCodes calibrates and tunes, as the recipe asks. done must be called when the codes are
// written.
func (j *quantizeJob) chooseCodes(write *conversion.WriteOptions, r *QuantizeReport) (done func(), err error) {
	done = func() {}
	if j.calibration != nil {
		if write.Codes, done, err = j.calibration.run(j.plan); err != nil {
			return nil, err
		}
	}
	if j.tuning != nil {
		if write.Codes, r.Tuning, err = j.tuning.run(write.Codes); err != nil {
			done()
			return nil, err
		}
	}
	if c := write.Codes; c != nil {
		err = j.checkSize(c)
	}
	if err != nil {
		done()
		return nil, err
	}
	return done, nil
}

// checkSize refuses a file that exceeds its target once its description of calibration and tuning
// is added.
func (j *quantizeJob) checkSize(c *conversion.CalibratedCodes) error {
	b := j.o.Budget
	if b == nil || b.FileBytes == 0 {
		return nil
	}
	var t *conversion.Tuning
	if c.Tuned != nil {
		t = c.Tuned.Tuning
	}
	size, err := j.plan.SizeWith(c.Calibration, t)
	if err == nil && size > b.FileBytes {
		err = fmt.Errorf("the file would have %d bytes with what it says of calibration, more than the %d of its target", size, b.FileBytes)
	}
	return err
}

// onlyWrites reports whether the job only writes a file, so that a rate makes sense.
func (j *quantizeJob) onlyWrites() bool {
	return j.calibration == nil && j.tuning == nil && j.folding == nil && j.chosen == nil && j.measured == nil
}

// checked reports whether the complete file is read before it appears.
func (j *quantizeJob) checked() bool { return j.measured != nil || j.textCalibrated() }

// textCalibrated reports whether codes were chosen on a text: the loss is then measured on another one.
// A sweep measures its files itself.
func (j *quantizeJob) textCalibrated() bool {
	return j.calibration != nil && j.o.Recipe.Calibrate != "" && j.o.shared == nil
}

// measure measures the complete file at temp before it appears. An error keeps it from appearing.
func (j *quantizeJob) measure(temp string, r *QuantizeReport) (err error) {
	if j.textCalibrated() {
		if err := j.calibration.heldOut(temp, r); err != nil {
			return err
		}
	}
	if j.measured == nil {
		return nil
	}
	err = withGQF(j.ctx, temp, j.o.Threads, stages{}, func(file string, im *accuracy.Imported) error {
		j.measured.File, j.measured.Imported = file, im
		r.Accuracy, err = j.o.Measure.run(j.ctx, j.measured, j.stages)
		return err
	})
	if err != nil {
		return err
	}
	err = Verdict(r.Accuracy)
	if unmet, ok := errors.AsType[*GateNotMetError](err); ok {
		unmet.Output, unmet.Kept = j.to.Name, j.o.Keep
		if j.o.Keep {
			j.unmet = unmet
			return nil
		}
	}
	return err
}
