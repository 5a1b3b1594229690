-- What was lost by now has been recovered: the next check may retire it.
update liveness_clock set swept = reading returning swept
